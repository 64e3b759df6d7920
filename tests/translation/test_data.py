"""Training data: what is read, held out by seed, left out and said."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headlights.translation.corpus import CorpusError, Pair, grammar
from headlights.translation.data import TrainingData, load_data
from headlights.translation.recipe import RecipeError, check_recipe
from headlights.translation.tokenizer import Tokenizer

PAIRS = [(f"source number {i}", f"numero {i} del testo") for i in range(47)]


def table(path: Path, pairs: list[tuple[str, str]]) -> str:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return str(path)


def load(
    data: dict[str, Any],
    *,
    seed: int = 1,
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None,
    **tokenizer: Any,
) -> TrainingData:
    content = {
        "data": data,
        "tokenizer": {"kind": "word", "vocab_size": 90, **tokenizer},
        "training": {"max_updates": 1, "seed": seed, "batch_tokens": 60},
    }
    return load_data(check_recipe(content, "test"), tokenizers=tokenizers)


def trained_on(data: TrainingData) -> set[str]:
    """The source sentences of one epoch, decoded."""
    tokenizer = data.source_tokenizer
    return {
        tokenizer.decode(row[: length - 1])
        for batch in data.train.batches(0)
        for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)
    }


def test_a_held_out_part_is_seeded_and_said(tmp_path: Path) -> None:
    train = table(tmp_path / "train.tsv", PAIRS)
    data = load({"train": [train], "held_out": 3}, seed=5)
    assert len(data.valid) == 3
    assert data.notes == ("no validation file: held out 3 of the training pairs (seed 5)",)
    held = {pair.source for pair in data.valid}
    assert trained_on(data) == {source for source, _ in PAIRS} - held
    again = load({"train": [train], "held_out": 3}, seed=5)
    assert again.valid == data.valid
    assert [pair.source for pair in data.valid] == sorted(held, key=[s for s, _ in PAIRS].index)
    assert load({"train": [train], "held_out": 3}, seed=6).valid != data.valid


@pytest.mark.parametrize(("count", "expected"), [(47, 4), (11, 1), (2, 1)])
def test_at_most_a_tenth_is_held_out_but_at_least_one(tmp_path: Path, count: int, expected: int) -> None:
    data = load({"train": [table(tmp_path / "train.tsv", PAIRS[:count])], "held_out": 500})
    assert len(data.valid) == expected
    assert len(data.train) == count - expected


def test_blank_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    blank = [("", "x"), ("y", " "), ("\u00a0", "\t".strip())]
    train = table(tmp_path / "train.tsv", [*PAIRS[:20], *blank])
    valid = table(tmp_path / "valid.tsv", [("", "x"), *PAIRS[40:]])
    data = load({"train": [train], "valid": [valid]})
    assert data.notes == (
        "left out 3 training pairs with a blank side",
        "left out 1 validation pair with a blank side",
    )
    assert len(data.train) == 20
    assert [(pair.source, pair.target) for pair in data.valid] == PAIRS[40:]


def test_long_training_pairs_are_left_out_and_counted(tmp_path: Path) -> None:
    pairs = [*PAIRS[:5], ("one two three four five", "uno"), ("uno", "one two three four five")]
    train = table(tmp_path / "train.tsv", pairs)
    data = load({"train": [train], "valid": [train], "max_length": 4})
    assert data.notes == ("left out 2 training pairs longer than 4 tokens",)
    assert len(data.train) == data.train.dropped + 3 == 5
    assert len(data.valid) == 7  # validation judges everything


def test_two_files_are_source_and_target(tmp_path: Path) -> None:
    for side, name in enumerate(("train.en", "train.it")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-8")
    files = [str(tmp_path / "train.en"), str(tmp_path / "train.it")]
    data = load({"train": files, "valid": files})
    assert [(pair.source, pair.target) for pair in data.valid] == PAIRS
    assert data.notes == ()


def test_tokenizers_learn_from_the_training_pairs_alone(tmp_path: Path) -> None:
    train = table(tmp_path / "train.tsv", PAIRS[:5])
    valid = table(tmp_path / "valid.tsv", [("unseen", "mai")])
    data = load({"train": [train], "valid": [valid]})
    source, target = data.source_tokenizer, data.target_tokenizer
    assert source is not target
    assert source.encode("source unseen numero").ids == (source.encode("source").ids[0], 3, 3)
    assert target.encode("numero mai source").ids == (target.encode("numero").ids[0], 3, 3)
    joint = load({"train": [train], "valid": [valid]}, joint=True)
    assert joint.source_tokenizer is joint.target_tokenizer
    assert 3 not in joint.source_tokenizer.encode("source numero").ids
    lower = load({"train": [train], "valid": [valid]}, lowercase=True)
    assert 3 not in lower.source_tokenizer.encode("SOURCE").ids
    reused = load({"train": [train], "valid": [valid]}, tokenizers=(target, source))
    assert reused.source_tokenizer is target
    assert reused.target_tokenizer is source


def test_the_order_of_batches_depends_on_the_seed(tmp_path: Path) -> None:
    train = table(tmp_path / "train.tsv", PAIRS)
    orders = [
        [
            batch.indices.tolist()
            for batch in load({"train": [train], "valid": [train]}, seed=s).train.batches(0)
        ]
        for s in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert len(orders[0]) > 1


def test_other_pairs_go_through_the_same_tokenizers(tmp_path: Path) -> None:
    data = load({"train": [table(tmp_path / "train.tsv", PAIRS)]})
    (batch,) = data.batches([Pair("number source", "testo")], 60).ordered()
    source, target = data.source_tokenizer, data.target_tokenizer
    assert batch.source[0].tolist() == [*source.encode("number source").ids, source.eos_id]
    assert batch.target_in[0].tolist() == [target.bos_id, *target.encode("testo").ids]


def test_without_files_the_built_in_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tuple(Pair(*texts) for texts in PAIRS)
    asked: list[tuple[int, int]] = []

    def splits(*, train: int, valid: int) -> SimpleNamespace:
        asked.append((train, valid))
        return SimpleNamespace(train=pairs[:40], valid=pairs[40:])

    monkeypatch.setattr(grammar, "splits", splits)
    data = load({"built_in": 100, "held_out": 7})
    assert asked == [(100, 7)]
    assert data.valid == list(pairs[40:])
    assert data.notes == ()
    assert trained_on(data) == {pair.source for pair in pairs[:40]}


def test_refusals(tmp_path: Path) -> None:
    blank = table(tmp_path / "blank.tsv", [("", "x")])
    with pytest.raises(CorpusError, match=r"no sentence pairs in .*blank\.tsv; training needs at least one"):
        load({"train": [blank]})
    some = table(tmp_path / "some.tsv", PAIRS[:3])
    with pytest.raises(
        CorpusError, match=r"no sentence pairs in .*blank\.tsv; validation needs at least one"
    ):
        load({"train": [some], "valid": [blank]})
    one = table(tmp_path / "one.tsv", PAIRS[:1])
    with pytest.raises(CorpusError, match=r"only one sentence pair in .*one\.tsv and no validation file"):
        load({"train": [one]})
    assert len(load({"train": [one], "valid": [one]}).train) == 1
    with pytest.raises(
        CorpusError,
        match=r"some\.tsv: every sentence pair has a side of more than 1 tokens; raise data\.max_l",
    ):
        load({"train": [some], "valid": [some], "max_length": 1})


def test_a_built_in_corpus_that_teaches_too_little_is_the_recipes_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_small(**_: int) -> None:
        raise ValueError("train: 100 pairs teach too few words for the other splits; expected 1000 or more")

    monkeypatch.setattr(grammar, "splits", too_small)
    with pytest.raises(RecipeError, match=r"data\.built_in: 100 pairs teach too few words .*; set 1000 or "):
        load({"built_in": 100})


def test_what_is_held_out_is_not_trained_on_where_it_stands_twice(tmp_path: Path) -> None:
    data = load({"train": [table(tmp_path / "train.tsv", PAIRS[:20] * 2)], "held_out": 4})
    held = {(pair.source, pair.target) for pair in data.valid}
    assert held
    assert not trained_on(data) & {source for source, _ in held}
    twins = 40 - len(data.valid) - len(data.train)
    assert 0 < twins <= 4
    assert data.notes[1] == f"left out {twins} training pair{'s' * (twins > 1)} that are held out, too"


def test_pairs_that_are_all_alike_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        CorpusError, match=r"train\.tsv: all pairs say the same, and none is left to train on; "
    ):
        load({"train": [table(tmp_path / "train.tsv", PAIRS[:1] * 9)]})


def test_pairs_to_validate_with_need_pairs_to_train_on() -> None:
    with pytest.raises(RecipeError, match=r"data: valid: needs train beside it: without files"):
        load({"valid": ["valid.tsv"]})
