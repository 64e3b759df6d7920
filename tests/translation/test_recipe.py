"""Recipes: what is read, what is changed, and what is refused in one clear line."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from headlights.translation.architectures import RecurrentConfig, TransformerConfig
from headlights.translation.recipe import (
    Recipe,
    RecipeError,
    built_in_recipes,
    check_recipe,
    load_recipe,
)

LEAST: dict[str, Any] = {"training": {"max_updates": 7}}


def recurrent(recipe: Recipe) -> RecurrentConfig:
    assert isinstance(recipe.model, RecurrentConfig)
    return recipe.model


def check(**sections: dict[str, Any]) -> Recipe:
    return check_recipe({**LEAST, **sections}, "mine")


def test_the_least_recipe_has_every_default() -> None:
    recipe = check()
    assert recipe.training.max_updates == 7
    assert recipe.training.max_minutes is None
    assert recipe.data.train == ()
    assert recurrent(recipe).score == "additive"
    assert recipe == check(data={}, tokenizer={}, model={})


@pytest.mark.parametrize(
    "name", ["compare", "demo", "rnn-base", "rnn-small", "transformer-base", "transformer-tiny"]
)
def test_recipes_that_come_with_the_package(name: str) -> None:
    assert name in built_in_recipes()
    assert built_in_recipes() == sorted(built_in_recipes())
    assert isinstance(load_recipe(name), Recipe)


def test_a_recipe_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[data]\ntrain = ["a.en", "a.it"]\n[model]\ncell = "lstm"\n[training]\nmax_minutes = 0.5\n',
        encoding="utf-8",
    )
    recipe = load_recipe(file)
    assert recipe == load_recipe(str(file))
    assert recipe.data.train == ("a.en", "a.it")
    assert recurrent(recipe).cell == "lstm"
    assert recipe.training.max_minutes == 0.5


def test_changes_leave_the_rest_and_the_original() -> None:
    recipe = check(model={"layers": 2})
    changed = recipe.changed(
        {"model.hidden_dim": 11, "data.held_out": 3},
        ["model.cell=lstm", " training.seed = 5 ", "data.train=['x.tsv']", "tokenizer.lowercase=true"],
    )
    assert changed.model == recipe.model.model_copy(update={"hidden_dim": 11, "cell": "lstm"})
    assert changed.training == recipe.training.model_copy(update={"seed": 5})
    assert (changed.data.held_out, changed.data.train) == (3, ("x.tsv",))
    assert changed.tokenizer.lowercase is True
    assert recipe == check(model={"layers": 2})
    assert recipe.changed({}) == recipe


def test_values_may_be_bare_text_or_hold_an_equals_sign() -> None:
    quiet = RecurrentConfig(score="none")
    assert check().changed({}, ["data.train=['a=b.tsv']"]).data.train == ("a=b.tsv",)
    assert check().changed({}, ["model.score=none"]).model == quiet
    assert check().changed({}, ['model.score="none"']).model == quiet
    # Later ones win, and assignments win over values.
    assert check().changed({"model.layers": 2}, ["model.layers=3", "model.layers=4"]).model.layers == 4


def test_a_new_architecture_begins_from_its_own_defaults() -> None:
    recipe = check(model={"layers": 2, "cell": "lstm"}).changed({}, ["model.architecture=transformer"])
    assert recipe.model == TransformerConfig()
    again = recipe.changed({"model.heads": 2}, ["model.architecture=transformer", "model.norm=post"])
    assert again.model == TransformerConfig(heads=2, norm="post")
    assert again.changed({"model.architecture": "recurrent"}).model == RecurrentConfig()


@pytest.mark.parametrize("limit", [{"training.max_minutes": 2.0}, {"training.max_epochs": 2}])
def test_a_new_limit_replaces_the_old_ones(limit: dict[str, Any]) -> None:
    recipe = check(training={"max_updates": 7, "max_minutes": 1.0})
    training = recipe.changed(limit).training
    (name,) = (key.partition(".")[2] for key in limit)
    for other in ("max_updates", "max_epochs", "max_minutes"):
        assert getattr(training, other) == (2 if other == name else None)
    both = recipe.changed({"training.max_updates": 3}, ["training.max_epochs=4"]).training
    assert (both.max_updates, both.max_epochs, both.max_minutes) == (3, 4, None)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"model": {"hiden_dim": 3}}, "mine: unknown key model.hiden_dim; did you mean model.hidden_dim?"),
        (
            {"training": {"max_update": 3}},
            "mine: unknown key training.max_update; did you mean training.max_updates?",
        ),
        ({"modell": {}}, "mine: unknown key modell; did you mean model?"),
        (
            {"model": {"heads": 3}},
            "mine: model.heads is a key of model.architecture = 'transformer' only, which this model has not",
        ),
        # A section with a misspelt name is unknown rather than missing.
        (
            {"trainig": {"max_updates": 3}, "training": None},
            "mine: unknown key trainig; did you mean training?",
        ),
        (
            {"training": None},
            "mine: training is missing; set at least one of its limits, for example "
            "training.max_minutes = 20",
        ),
        (
            {"tokenizer": {"vocab_size": 258}},
            "mine: tokenizer: vocab_size must be at least 259 with kind 'bpe', for the bytes and the special "
            "tokens, got 258; a few thousand is usual",
        ),
        ({"model": {"layers": 0}}, "mine: model.layers: input should be greater than or equal to 1, got 0"),
        ({"model": {"cell": "rnn"}}, "mine: model.cell: input should be 'gru' or 'lstm', got 'rnn'"),
        ({"model": {"dropout": 1.0}}, "mine: model.dropout: input should be less than 1, got 1.0"),
        (
            {"model": 3},
            "mine: model: input should be a valid dictionary or instance of RecurrentConfig, got 3",
        ),
        (
            {"training": {"max_minutes": float("inf")}},
            "mine: training.max_minutes: input should be a finite number, got inf",
        ),
        (
            {"training": {}},
            "mine: training: one of max_updates, max_epochs and max_minutes must be set, "
            "or training never ends",
        ),
        (
            {"data": {"train": ["a", "b", "c"]}},
            "mine: data: train: expected a file of pairs or a source and a target file, got 3 files",
        ),
        (
            {"model": {"score": "dot", "hidden_dim": 7, "encoder_dim": 3}},
            "mine: model: score 'dot' compares vectors of one width, but hidden_dim is 7 and encoder states "
            "are 6 wide (two directions of encoder_dim = 3); set hidden_dim to 6 or choose score 'bilinear'",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(content: dict[str, Any], text: str) -> None:
    given = {key: value for key, value in {**LEAST, **content}.items() if value is not None}
    with pytest.raises(RecipeError, match=f"^{re.escape(text)}$"):
        check_recipe(given, "mine")


@pytest.mark.parametrize(
    "assignment", ["layers=2", "model.layers", "model.=2", ".layers=2", "model.layers 2"]
)
def test_assignments_need_section_key_and_value(assignment: str) -> None:
    text = f"{assignment!r}: expected SECTION.KEY=VALUE, for example model.layers=2"
    with pytest.raises(RecipeError, match=f"^{re.escape(text)}$"):
        check().changed({}, [assignment])


@pytest.mark.parametrize("key", ["model.laiers", "modle.layers"])
def test_changes_of_unknown_keys_name_the_nearest(key: str) -> None:
    with pytest.raises(RecipeError, match=r"^recipe: unknown key \S+; did you mean model(\.layers)?\?$"):
        check().changed({}, [f"{key}=2"])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        RecipeError, match=r"recipe 'no\.toml' is neither a file nor one of compare, demo, rnn-base"
    ):
        load_recipe("no.toml")
    broken, binary = tmp_path / "broken.toml", tmp_path / "binary.toml"
    broken.write_text("[model\nlayers = 2", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe")
    for path in (broken, binary):
        with pytest.raises(RecipeError, match=f"^{re.escape(str(path))}: cannot be read as TOML: .+$"):
            load_recipe(path)
    with pytest.raises(RecipeError, match=r"cannot be read: Is a directory"):
        load_recipe(tmp_path)
    with pytest.raises(RecipeError, match=r"cannot be read as TOML: embedded null byte"):
        load_recipe("a\0b")


def test_word_vocabulary_may_be_small() -> None:
    assert check(tokenizer={"kind": "word", "vocab_size": 8}).tokenizer.vocab_size == 8


def test_checking_draws_no_random_numbers() -> None:
    state = torch.get_rng_state()
    check(model={"score": "bilinear"})
    assert torch.equal(torch.get_rng_state(), state)


def test_a_penalty_on_attention_needs_attention() -> None:
    with pytest.raises(RecipeError, match=r"training\.coverage is a penalty on attention, which model"):
        check_recipe({"model": {"score": "none"}, "training": {"coverage": 0.1, "max_updates": 1}}, "r")
