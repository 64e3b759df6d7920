"""The ladder: alike in everything but the model, and each rung what its name says."""

from typing import Any

import pytest

from headlights.translation.architectures import RecurrentConfig
from headlights.translation.comparing import RUNGS, folder_name, ladder
from headlights.translation.recipe import RecipeError, load_recipe


def test_rungs_differ_in_the_model_alone() -> None:
    base = load_recipe("demo")
    assert isinstance(base.model, RecurrentConfig)
    recipes = ladder(base)
    assert tuple(recipes) == RUNGS
    for recipe in recipes.values():
        assert (recipe.data, recipe.tokenizer, recipe.forcing) == (base.data, base.tokenizer, base.forcing)
        assert recipe.training.max_minutes == base.training.max_minutes
        assert recipe.training.batch_tokens == base.training.batch_tokens
    described = {
        name: (r.model.score, r.model.final, r.model.mix)
        for name, r in recipes.items()
        if isinstance(r.model, RecurrentConfig)
    }
    assert described == {
        "no attention": ("none", "first", "concat"),
        "context in every cell": ("none", "every", "concat"),
        "u + u'": ("additive", "first", "add"),
        "additive": ("additive", "first", "concat"),
    }
    assert recipes["transformer"].model.architecture == "transformer"
    assert recipes["transformer"].model.embed_dim == base.model.hidden_dim


def test_what_regularises_one_rung_regularises_all() -> None:
    base = load_recipe("demo").changed({"model.dropout": 0.4, "model.word_dropout": 0.1})
    for recipe in ladder(base).values():
        assert (recipe.model.dropout, recipe.model.word_dropout) == (0.4, 0.1)


def test_some_rungs_in_the_order_asked_for() -> None:
    assert list(ladder(load_recipe("demo"), ["additive", "no attention"])) == ["additive", "no attention"]


def test_what_makes_no_ladder_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"rung 'some': expected one of no attention, .*, transformer"):
        ladder(load_recipe("demo"), ["some"])
    with pytest.raises(RecipeError, match="the ladder needs the sizes of a recurrent model"):
        ladder(load_recipe("transformer-tiny"))


@pytest.mark.parametrize("changes", [{"query": "between"}, {"query": "current", "input_feeding": True}])
def test_a_ladder_starts_from_any_decoder(changes: dict[str, Any]) -> None:
    base = load_recipe("demo").changed({f"model.{key}": value for key, value in changes.items()})
    assert [recipe.model.make(20, 20, pad_id=0)[1] is not None for recipe in ladder(base).values()] == [
        True
    ] * 5


def test_folders_have_plain_names() -> None:
    names = [folder_name(rung) for rung in RUNGS]
    assert names == ["no-attention", "context-in-every-cell", "sum", "additive", "transformer"]
