"""Prepared folders: the same batches as from the text itself, and an honest account of what was left out."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from headlights.translation import prepared
from headlights.translation.batches import TokenBatches
from headlights.translation.corpus import CorpusError, Pair, write_jsonl
from headlights.translation.corpus.filters import SizeFilter
from headlights.translation.data import load_data
from headlights.translation.folders import FolderError
from headlights.translation.locks import locked_beside
from headlights.translation.prepared import load_prepared
from headlights.translation.preparing import PrepareConfig, prepare
from headlights.translation.recipe import RecipeError, TokenizerConfig, check_recipe
from headlights.translation.sentences import Sentences

WORDS = TokenizerConfig(kind="word", vocab_size=900)
PAIRS = [Pair(f"row {i} of the source", f"riga {i}" + " molto" * (i % 7)) for i in range(211)]


def corpus(folder: Path, pairs: list[Pair] = PAIRS) -> list[str]:
    write_jsonl(pairs, folder / "train.jsonl")
    return [str(folder / "train.jsonl")]


def recipe(folder: Path, **tokenizer: Any) -> Any:
    content = {
        "data": {"prepared": str(folder)},
        "tokenizer": {**WORDS.model_dump(), **tokenizer},
        "training": {"max_updates": 1, "seed": 5, "batch_tokens": 60},
    }
    return check_recipe(content, "test")


@pytest.mark.parametrize("workers", [1, 2])
def test_prepared_batches_are_those_of_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(prepared, "_ROWS", 50)  # several record batches
    monkeypatch.setattr("headlights.translation.preparing._CHUNK", 23)
    config = PrepareConfig(tokenizer=WORDS, held_out=7, seed=3, workers=workers)
    report = prepare(corpus(tmp_path), tmp_path / "out", config=config)
    assert (report.read, report.kept, report.valid) == (211, 204, 7)
    stored = load_prepared(tmp_path / "out")
    held = {pair.source for pair in stored.valid}
    assert len(held) == 7
    kept = [pair for pair in PAIRS if pair.source not in held]
    source, target = stored.source_tokenizer, stored.target_tokenizer
    assert report.source_tokens == sum(len(source.encode(pair.source).ids) for pair in kept)
    assert report.target_tokens == sum(len(target.encode(pair.target).ids) for pair in kept)
    plain = TokenBatches(
        [source.encode(pair.source).ids for pair in kept],
        [target.encode(pair.target).ids for pair in kept],
        max_tokens=60,
        pad_id=target.pad_id,
        bos_id=target.bos_id,
        eos_id=target.eos_id,
        seed=5,
        max_length=100,
    )
    loaded = load_data(recipe(tmp_path / "out")).train
    assert loaded.fingerprint() == plain.fingerprint()  # a run may go on with either
    batches = list(loaded.batches(1))
    expected = list(plain.batches(1))
    assert len(batches) == len(expected) > 5
    for batch, wanted in zip(batches, expected, strict=True):
        for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths", "indices"):
            assert torch.equal(getattr(batch, name), getattr(wanted, name)), name


def test_everything_left_out_is_counted(tmp_path: Path) -> None:
    good = [Pair(f"a b {i}", f"c d {i}") for i in range(20)]
    bad = [
        Pair(" ", "blank source"),
        Pair("blank target", ""),
        good[3],
        Pair("a " * 9, "c " * 9),  # 9 tokens a side
        Pair("a b c d e", "c"),  # 5 times as long
    ]
    sizes = SizeFilter(max_length=8, max_ratio=4.0)
    paths = corpus(tmp_path, good + bad)
    report = prepare(paths, tmp_path / "out", config=PrepareConfig(tokenizer=WORDS, sizes=sizes), valid=paths)
    assert report.dropped.counts == {"blank": 2, "duplicate": 1, "long": 1, "ratio": 1}
    assert report.dropped.examples["duplicate"] == [f"{paths[0]}:23"]
    assert report.read == report.kept + sum(report.dropped.counts.values()) == 25
    told = json.loads((tmp_path / "out" / "prepared.json").read_text())
    assert told["dropped"]["counts"] == report.dropped.counts
    again = prepare(
        paths,
        tmp_path / "out",
        config=PrepareConfig(tokenizer=WORDS, sizes=sizes, duplicates=True),
        valid=paths,
    )
    assert again.kept == report.kept + 1


def test_the_tokenizer_learns_from_a_seeded_sample(tmp_path: Path) -> None:
    def vocabulary(seed: int) -> int:
        config = PrepareConfig(tokenizer=WORDS, tokenizer_pairs=10, seed=seed)
        prepare(corpus(tmp_path), tmp_path / "out", config=config)
        tokenizer = load_prepared(tmp_path / "out").source_tokenizer
        return sum(tokenizer.encode(str(i)).ids != (tokenizer.unk_id,) for i in range(211))

    assert vocabulary(1) == vocabulary(2) == 10  # one number in each of the ten sentences


def test_progress_counts_every_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlights.translation.preparing._CHUNK", 100)
    told: list[tuple[str, int, int | None]] = []
    prepare(
        corpus(tmp_path),
        tmp_path / "out",
        config=PrepareConfig(tokenizer=WORDS),
        on_progress=lambda *each: told.append(each),
    )
    assert told[:2] == [("reading", 100, None), ("reading", 200, None)]
    assert told[-1] == ("encoding", 211, 211)


def test_progress_counts_blank_and_repeated_pairs_to_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlights.translation.preparing._CHUNK", 100)
    told: list[tuple[str, int, int | None]] = []
    blank = Pair("", "b")
    prepare(
        corpus(tmp_path, [blank, *PAIRS[:200], blank, PAIRS[7], blank]),
        tmp_path / "out",
        config=PrepareConfig(tokenizer=WORDS),
        on_progress=lambda *each: told.append(each),
    )
    assert told[:2] == [("reading", 101, None), ("reading", 201, None)]
    encoding = [each for each in told if each[0] == "encoding"]
    assert {total for _, _, total in encoding} == {204}
    assert [done for _, done, _ in encoding] == [101, 201, 204]


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([PAIRS[0], Pair("", "")], "1 sentence pairs in .*train.jsonl; preparing needs at least two"),
        ([Pair("a " * 200, "b")] * 5, "nothing is left of .*train.jsonl: 4 duplicate, 1 long; loosen"),
    ],
)
def test_a_corpus_that_leaves_nothing_is_refused(tmp_path: Path, pairs: list[Pair], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        prepare(corpus(tmp_path, pairs), tmp_path / "out", config=PrepareConfig(tokenizer=WORDS))
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["train.jsonl"]


def test_validation_files_may_not_be_blank(tmp_path: Path) -> None:
    write_jsonl([Pair(" ", "")], tmp_path / "valid.jsonl")
    with pytest.raises(CorpusError, match=r"no pairs to validate with in .*valid\.jsonl"):
        prepare(corpus(tmp_path), tmp_path / "out", valid=[tmp_path / "valid.jsonl"])


def test_other_folders_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(FolderError, match="out holds something else: choose another folder"):
        prepare(corpus(tmp_path), tmp_path / "out")
    assert (tmp_path / "out" / "thesis.txt").read_text() == "mine"


def test_another_corpus_is_not_replaced(tmp_path: Path) -> None:
    out, config = tmp_path / "out", PrepareConfig(tokenizer=WORDS)
    first = corpus(tmp_path)
    prepare(first, out, config=config)
    before = (out / "train.arrow").read_bytes()
    other = shutil.copy(first[0], tmp_path / "other.jsonl")
    with pytest.raises(FolderError) as caught:
        prepare([other], out, config=config)
    assert str(caught.value) == (
        f"{out} holds another corpus, prepared from {first[0]}: choose another folder, or delete this one"
    )
    assert (out / "train.arrow").read_bytes() == before


@pytest.mark.parametrize("name", ["run", "new.jsonl"])
@pytest.mark.parametrize("aside", [False, True], ids=["in place", "aside"])
def test_what_else_lies_in_an_older_folder_is_not_deleted(tmp_path: Path, name: str, aside: bool) -> None:
    out, config = tmp_path / "out", PrepareConfig(tokenizer=WORDS)
    paths = corpus(tmp_path)
    prepare(paths, out, config=config)
    shutil.copy(paths[0], out / name)
    place = out.rename(tmp_path / ".out.old") if aside else out  # as if killed between two renames
    with pytest.raises(FolderError) as caught:
        prepare(paths, out, config=config)
    assert str(caught.value) == (
        f"{place / name} is not of the prepared folder and would be deleted with it: move it elsewhere, or "
        "choose another folder"
    )
    (place / name).rename(tmp_path / name)
    for joint in (True, False):  # files of other names belong to it, too
        joined = PrepareConfig(tokenizer=WORDS.model_copy(update={"joint": joint}))
        assert prepare(paths, out, config=joined).read == 211
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.jsonl", name}


def test_what_is_put_into_an_older_folder_meanwhile_is_not_deleted(tmp_path: Path) -> None:
    out, config = tmp_path / "out", PrepareConfig(tokenizer=WORDS)
    prepare(corpus(tmp_path), out, config=config)
    before = (out / "train.arrow").read_bytes()
    with pytest.raises(FolderError, match="out/run is not of the prepared folder"):
        prepare(
            corpus(tmp_path, PAIRS[:50]),
            out,
            config=config,
            on_progress=lambda *_: (out / "run").mkdir(exist_ok=True),
        )
    assert (out / "run").is_dir()
    assert (out / "train.arrow").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"out", "train.jsonl"}


def test_one_process_at_a_time_prepares_into_a_folder(tmp_path: Path) -> None:
    out, config = tmp_path / "deep" / "out", PrepareConfig(tokenizer=WORDS)
    with locked_beside(out):
        (out.parent / ".out.new").mkdir()  # what the holder has written so far
        with pytest.raises(
            FolderError, match=f"out is being prepared by process {os.getpid()} on .*; wait until it ends, or"
        ):
            prepare(corpus(tmp_path), out, config=config)
        assert {path.name for path in out.parent.iterdir()} == {".out.lock", ".out.new"}
    (out.parent / ".out.lock").write_text("process 1 on a machine")  # it was killed
    assert prepare(corpus(tmp_path), out, config=config).read == 211
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_prepared_folder_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(corpus(tmp_path), out, config=PrepareConfig(tokenizer=WORDS))
    with pytest.raises(FolderError, match=r"prepared with tokenizer.vocab_size = 900, the recipe has 800"):
        load_data(recipe(out, vocab_size=800))
    with pytest.raises(RecipeError, match="prepared: such a folder brings its own pairs"):
        recipe(out).changed({"data.train": ("x.tsv",)})
    prepare(corpus(tmp_path, PAIRS[:50]), tmp_path / "other", config=PrepareConfig(tokenizer=WORDS))
    other = load_prepared(tmp_path / "other")
    with pytest.raises(FolderError, match="out has other tokenizers than the run began with"):
        load_data(recipe(out), tokenizers=(other.source_tokenizer, other.target_tokenizer))


def test_each_pair_knows_its_file_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_ROWS", 5)
    tables = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    write_jsonl([PAIRS[0], Pair("", ""), *PAIRS[1:20]], tables[0])
    write_jsonl([PAIRS[3], *PAIRS[20:40]], tables[1])  # the first of them has come before
    prepare(tables, tmp_path / "out", config=PrepareConfig(tokenizer=WORDS, held_out=7))
    stored = load_prepared(tmp_path / "out")
    decode = stored.source_tokenizer.decode
    assert len(stored.origins) == len(stored.source) == 36  # 40 less a tenth
    for row, origin in enumerate(stored.origins):
        file, _, line = origin.rpartition(":")
        record = json.loads(Path(file).read_text().splitlines()[int(line) - 1])
        assert decode(stored.source.joined(torch.tensor([row])).tolist()) == record["source"]
    assert stored.origins[1:3] == [stored.origins[1], stored.origins[2]]
    found = load_data(recipe(tmp_path / "out")).name_pairs([35, 0])
    assert found == f"{stored.origins[0]}, {stored.origins[35]}"
    assert found.endswith(f"{tables[1]}:21")


def test_folders_from_before_pairs_had_places_say_the_number(tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare(corpus(tmp_path), out, config=PrepareConfig(tokenizer=WORDS))
    expected = list(load_data(recipe(out)).train.batches(0))
    rewrite(out / "train.arrow", ["source", "target"])
    found = load_data(recipe(out))
    for batch, wanted in zip(found.train.batches(0), expected, strict=True):
        assert torch.equal(batch.source, wanted.source)
    assert found.name_pairs([4, 2]) == f"pair 3 of {out}, pair 5 of {out}"
    rewrite(out / "train.arrow", ["source"])
    with pytest.raises(
        FolderError,
        match=r"train.arrow: expected columns source, .* line, got source: list<item: int32>; ",
    ):
        load_prepared(out)


def rewrite(path: Path, columns: list[str]) -> None:
    """Leave only some columns of an Arrow file."""
    table = pa.ipc.open_file(path.read_bytes()).read_all().select(columns)
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, table.schema) as file:
        file.write_table(table)


def test_broken_folders_are_named(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(FolderError, match=r"out: there is no prepared.json; expected a folder written by"):
        load_prepared(out)
    prepare(corpus(tmp_path), out, config=PrepareConfig(tokenizer=WORDS))
    shutil.copytree(out, tmp_path / "cut")
    data = (out / "train.arrow").read_bytes()
    (tmp_path / "cut" / "train.arrow").write_bytes(data[: len(data) // 2])
    with pytest.raises(
        FolderError, match=r"cut/train.arrow is broken or cut short .*; prepare the corpus again"
    ):
        load_prepared(tmp_path / "cut")
    (tmp_path / "cut" / "train.arrow").unlink()
    with pytest.raises(FolderError, match=r"cut/train.arrow cannot be read: .*; prepare the corpus again"):
        load_prepared(tmp_path / "cut")
    shutil.copytree(out, tmp_path / "emptied")
    (tmp_path / "emptied" / "valid.jsonl").write_text("")
    with pytest.raises(FolderError, match=r"emptied/valid.jsonl holds no validation pairs; prepare"):
        load_prepared(tmp_path / "emptied")
    report = json.loads((out / "prepared.json").read_text())
    (out / "prepared.json").write_text(json.dumps({**report, "version": 99}))
    with pytest.raises(FolderError, match=r"expected format 'headlights-prepared', version 1, got .*, 99"):
        load_prepared(out)
    (out / "prepared.json").write_text(json.dumps({**report, "tokenizer": None}))
    with pytest.raises(FolderError, match=r"prepared.json: must name its files and its tokenizer; prepare"):
        load_prepared(out)


def test_joined_sentences_are_slices() -> None:
    sentences = Sentences.of([[1, 2, 3], [], [4], [5, 6]])
    assert sentences.joined(torch.tensor([3, 1, 0, 3])).tolist() == [5, 6, 1, 2, 3, 5, 6]
    assert sentences.joined(torch.tensor([1])).tolist() == []


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_held_out_is_not_trained_on_where_it_stands_twice(tmp_path: Path, workers: int) -> None:
    config = PrepareConfig(tokenizer=WORDS, held_out=20, workers=workers)
    report = prepare(corpus(tmp_path, [*PAIRS, *PAIRS]), tmp_path / "out", config=config)
    stored = load_prepared(tmp_path / "out")
    held = {pair.source for pair in stored.valid}
    every = torch.arange(len(stored.source.lengths))
    trained = {stored.source_tokenizer.decode(stored.source.joined(row[None]).tolist()) for row in every}
    assert 0 < len(held) == report.valid
    assert not trained & held
    assert trained | held == {pair.source for pair in PAIRS}
    assert report.dropped.counts["duplicate"] == 211


def test_what_is_held_out_is_not_trained_on_where_duplicates_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlights.translation.preparing._CHUNK", 100)
    config = PrepareConfig(tokenizer=WORDS, held_out=20, duplicates=True)
    report = prepare(corpus(tmp_path, [*PAIRS, *PAIRS, *PAIRS]), tmp_path / "out", config=config)
    stored = load_prepared(tmp_path / "out")
    held = {pair.source for pair in stored.valid}
    every = torch.arange(len(stored.source.lengths))
    trained = [stored.source_tokenizer.decode(stored.source.joined(row[None]).tolist()) for row in every]
    assert 0 < len(held) == report.valid < 20  # of the twenty numbers some are of pairs that came before
    assert sorted(trained) == sorted(3 * [pair.source for pair in PAIRS if pair.source not in held])
    assert report.dropped.counts == {"duplicate": 2 * len(held)}


def test_held_out_pairs_that_all_came_before_are_no_validation(tmp_path: Path) -> None:
    pairs = [PAIRS[0], PAIRS[1], *[PAIRS[0]] * 17]  # one is held out, and stands at the end with this seed
    config = PrepareConfig(tokenizer=WORDS, held_out=1)
    with pytest.raises(CorpusError, match=r"no pairs to validate with in .*train.jsonl; give others"):
        prepare(corpus(tmp_path, pairs), tmp_path / "out", config=config)
    assert not (tmp_path / "out").exists()


def test_text_that_can_be_read_only_once_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.tsv")
    with pytest.raises(CorpusError, match=r"train\.tsv is no ordinary file; preparing reads text twice"):
        prepare([tmp_path / "train.tsv"], tmp_path / "out")
