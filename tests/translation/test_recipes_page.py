"""`docs/recipes.md`: its recipes are complete, and what they say are the defaults."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headlights.translation.recipe import check_recipe

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
RECURRENT, TRANSFORMER = (
    tomllib.loads(block)
    for block in re.findall(r"^```toml\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
)
LIMIT: dict[str, Any] = {"training": {"max_minutes": RECURRENT["training"]["max_minutes"]}}


def said(content: dict[str, Any]) -> dict[str, Any]:
    """A recipe as Python holds it, without the keys that are off."""
    sections = check_recipe(content, "the page").model_dump(mode="json", exclude_none=True)
    return {name: values for name, values in sections.items() if name in content or content is LIMIT}


def test_the_page_says_every_key_and_its_default() -> None:
    assert said(LIMIT) == RECURRENT


def test_the_page_says_every_key_of_a_transformer() -> None:
    assert TRANSFORMER["model"] == said({**LIMIT, "model": {"architecture": "transformer"}})["model"]


@pytest.mark.parametrize(
    "key",
    [
        "model.score_scale",
        "forcing.updates",
        "forcing.final",
        "training.max_updates",
        "training.max_epochs",
        "training.patience",
    ],
)
def test_the_page_names_the_keys_that_are_off(key: str) -> None:
    section, name = key.split(".")
    everything = check_recipe(LIMIT, "the page").model_dump(mode="json")
    assert everything[section][name] is None
    assert f"`{key}`" in PAGE.read_text("utf-8")


def test_no_other_key_is_off() -> None:
    recurrent = check_recipe(LIMIT, "the page").model_dump(mode="json")
    off = {
        f"{name}.{key}" for name, keys in recurrent.items() for key, value in keys.items() if value is None
    }
    assert len(off) == 6
