"""A training killed at any moment: the next command finds a usable folder, and going on changes nothing."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from tests.translation.toy import toy_content

FULL = os.environ.get("HEADLIGHTS_FULL") == "1"
ROOT = Path(__file__).parents[2]


def moments() -> list[str]:
    """Shares of all calls to the file system, and in the full run seconds after the start too."""
    draw = random.Random(20)
    if not FULL:
        return ["l2", "k0.0", *(f"k{draw.random():.3f}" for _ in range(3))]
    calls = [f"k{share / 100}" for share in range(101)]
    calls += ["l1", "l2", "l3"]
    return [*calls, *(f"k{draw.random()}" for _ in range(20)), *(f"s{draw.random():.3f}" for _ in range(20))]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("killed")
    content = toy_content(folder, max_updates=9, average=4, accumulate=2, patience=2)
    content["forcing"] = {"ratio": 0.5}
    (folder / "toy.toml").write_text(tomli_w.dumps(content), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.translation.killing", str(folder), *moments()],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=3000 if FULL else 300,
        check=True,
    )
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("number", range(len(moments())), ids=moments())
def test_killed_training_goes_on_to_the_same_end(outcome: dict[str, object], number: int) -> None:
    results = outcome["results"]
    assert isinstance(results, list)
    result = results[number]
    assert result["killed"] or result["moment"].startswith("s")
    assert result["status"] == 0
    assert result["end"] == outcome["whole"]


@pytest.mark.parametrize("number", range(len(moments())), ids=moments())
def test_killed_training_translates_or_says_what_to_do(outcome: dict[str, object], number: int) -> None:
    results = outcome["results"]
    assert isinstance(results, list)
    result = results[number]
    if result.get("translated") == 0:
        assert len(result["lines"]) == 3
        assert result["lines"][1] == ""
        assert result["errors"] == []
    elif "translated" in result:
        assert result["translated"] == 2
        assert result["lines"] == []
        (line,) = result["errors"]
        assert "headlights train" in line
