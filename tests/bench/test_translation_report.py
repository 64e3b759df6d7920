"""The tables of `benchmarks/translation.py`, a script beside the package."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "translation_report.py"
if not SCRIPT.is_file():
    pytest.skip("needs a clone: benchmarks are not in the source archive", allow_module_level=True)


@pytest.fixture(scope="module")
def report() -> Any:
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def snapshots(*scores: float | None) -> list[dict[str, Any]]:
    return [{"update": 10 * place, "bleu": score} for place, score in enumerate(scores)][::-1]


@pytest.mark.parametrize(
    ("scores", "update", "note"),
    [
        pytest.param((None, 8.9, 9.0, 10.0, 12.0), 20, "", id="the first that is near, 1.0 included"),
        pytest.param(
            (3.0, 8.5, 11.5, 14.0), 20, "+1.5 BLEU from JoeyNMT", id="none is near: the first above"
        ),
        pytest.param((3.0, 7.0, 6.0, None), 10, "-3.0 BLEU from JoeyNMT", id="none is above: the best"),
    ],
)
def test_which_model_is_compared(
    report: Any, scores: tuple[float | None, ...], update: int, note: str
) -> None:
    chosen, said = report.choose(snapshots(*scores), 10.0)
    assert (chosen["update"], said) == (update, note)


def test_without_a_tested_model_there_is_none_to_compare(report: Any) -> None:
    with pytest.raises(ValueError, match="no model was tested yet; train ours longer"):
        report.choose(snapshots(None), 10.0)


def turn(seconds: float, **done: int) -> dict[str, float]:
    return {"seconds": seconds, "others": 0.0, **done}


@pytest.fixture
def speed() -> dict[str, Any]:
    # JoeyNMT: 100, 200, 600 tokens/s and 10 pairs/s. Ours: 600, 500, 700 and 30; the variant: 400 and 20.
    ours = [turn(2.0, tokens=tokens, pairs=60) for tokens in (1200, 1000, 1400)]
    theirs = [turn(1.0, tokens=tokens, pairs=10) for tokens in (100, 200, 600)]
    return {
        "JoeyNMT": {"rounds": theirs, "peak_mib": 1000.0},
        "headlights": {"rounds": ours, "peak_mib": 1100.0},
        "headlights, larger": {"rounds": [turn(1.0, tokens=400, pairs=20)], "peak_mib": 900.0},
    }


def test_speed_by_hand(report: Any, speed: dict[str, Any]) -> None:
    theirs = "200 (100 to 600)"
    assert report.speed_rows("rnn", speed) == [
        ("training, recurrent, target tokens/s", "600 (500 to 700)", theirs, "3.00×", "≥ 3×", "yes"),
        ("training, recurrent, target tokens/s (larger)", "400", theirs, "2.00×", "", ""),
        ("training, recurrent, sentence pairs/s", "30 (30 to 30)", "10 (10 to 10)", "3.00×", "", ""),
        ("training, recurrent, sentence pairs/s (larger)", "20", "10 (10 to 10)", "2.00×", "", ""),
        ("training, recurrent, peak memory", "1,100 MiB", "1,000 MiB", "1.10×", "≤ 1×", "no"),
        ("training, recurrent, peak memory (larger)", "900 MiB", "1,000 MiB", "0.90×", "", ""),
    ]


def decoded(report: Any, seconds: float, **more: Any) -> dict[str, Any]:
    words = report.lengths(["a b c", "a"], ["a b", "a b c"])  # 4 words where the references have 5
    return {
        "rounds": [turn(seconds, sentences=1000)],
        "peak_mib": 500.0,
        "parameters": 1234567,
        "bleu": 9.876,
        "words": words,
        "trained": {"seconds": 90.0, "updates": 1500},
        "note": "",
        **more,
    }


def test_the_whole_page_by_hand(report: Any, speed: dict[str, Any], tmp_path: Path) -> None:
    decode = {
        "JoeyNMT": decoded(report, 100.0),
        "headlights": decoded(report, 12.5, note="+1.5 BLEU from JoeyNMT"),
    }
    text = report.tables({"about": "A machine.", "transformer": {"speed": speed, "decode": decode}})
    lines = text.splitlines()
    assert lines[0] == "A machine."
    work = "1,000 test lines, beam 5, Transformer"
    assert f"| {work}, sentences/s | 80.0 | 10.0 | 8.00× | ≥ 10× | no |" in lines
    assert f"| {work}, peak memory | 500 MiB | 500 MiB | 1.00× | ≤ 1× | yes |" in lines
    row = "| 1,234,567 | 1.5 min, 1,500 updates | 9.88 | 2.0 | 3 | 0.80 |"
    assert [line for line in lines if row in line] == [
        f"| Transformer, {name} {row}" for name in ("headlights", "JoeyNMT")
    ]
    assert lines[-1] == "The Transformer models are not of one quality: ours is +1.5 BLEU from JoeyNMT."
    with pytest.raises(
        ValueError, match=r"--docs .*: expected translation-benchmarks.md in it, with the lines"
    ):
        report.write_page(tmp_path, text)
    page = tmp_path / "translation-benchmarks.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", encoding="utf-8")
    assert report.write_page(tmp_path, text) == page
    once = page.read_text("utf-8")
    assert once == f"before\n{report.BEGIN}\n\n{text}\n\n{report.END}\nafter\n"
    report.write_page(tmp_path, text)
    assert page.read_text("utf-8") == once
