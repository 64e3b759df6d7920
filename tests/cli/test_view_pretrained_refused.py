"""What `headlights view` refuses of Hugging Face models, in one line, and what it never does."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headlights.watch import Record
from tests.cli.conftest import Command, put_nan
from tests.cli.pretrained_models import Made, copied, save_tokenizer

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")

LONG = "the cat sleeps on the mat " * 13  # 78 tokens
CPU = ("--device", "cpu")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "view needs a text: headlights view MODEL 'Some text.'"),
        ([" "], "view needs a text: "),
        (["the", "--text-file", "-"], "give either TEXT or --text-file, not both"),
        (["the", "--target", "cat"], "--target: {} is no encoder–decoder model; it reads one text"),
        (["the", "--beam", "2"], "--beam: {} is no encoder–decoder model; it reads one text"),
        (["the", "--part", "cross"], "--part cross: {} is no encoder–decoder model of Hugging Face's"),
        (["the", "--part", "all"], "--part all: expected one of cross, encoder, decoder"),
        (["the", "--top", "2", "--all"], "give either --top or --all, not both"),
        (["the", "--svg", "a", "--png", "./a"], "--png a: --svg writes this file too; give each its own"),
        (["the", "--layer", "3"], "--layer 3: there are 2, counted from 1"),
        (["the", "--layer", "1", "--head", "4"], "--head 4: there are 3, counted from 1"),
        (["the", "--head", "1"], "--head 1: needs --layer beside it; there are 2 layers of 3 heads"),
    ],
)
def test_what_does_not_fit_is_refused(
    headlights: Command, made: Made, arguments: list[str], expected: str
) -> None:
    folder = made("Bert")
    assert headlights("view", folder, *arguments, *CPU).error.startswith(expected.format(folder))


def test_a_beam_beside_a_target_is_refused(headlights: Command, made: Made) -> None:
    assert headlights("view", made("Marian"), "the", "--target", "cat", "--beam", "2", *CPU).error == (
        "--beam 2: changes nothing beside --target, with which nothing is searched; leave one of them out"
    )


@pytest.mark.parametrize(
    ("kind", "options"), [("Bert", ()), ("Bert", ("--top", "2")), ("Marian", ("--target", "cat"))]
)
def test_weights_that_are_nan_are_one_line(
    headlights: Command, made: Made, tmp_path: Path, kind: str, options: tuple[str, ...]
) -> None:
    folder = copied(made, tmp_path, kind)
    put_nan(folder / "model.safetensors")
    name = "values" if "--top" in options else "weights"
    assert headlights("view", folder, "the cat sleeps", *options, *CPU).error == (
        f"{folder}: its attention cannot be drawn: {name}: expected finite numbers of at least 0, got nan"
    )


def test_layers_of_different_shapes_are_one_line(
    headlights: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("modules: two entries do not stack")

    monkeypatch.setattr(Record, "stack", refuse)
    for kind, options in (("Bert", ()), ("Marian", ("--target", "cat"))):
        assert headlights("view", made(kind), "the", *options, *CPU).error == (
            f"{made(kind)}: its attention cannot be drawn: modules: two entries do not stack"
        )


def test_want_of_memory_says_what_to_lower(
    headlights: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    encoder = transformers.models.bert.modeling_bert.BertEncoder
    monkeypatch.setattr(encoder, "forward", refuse)
    assert headlights("view", made("Bert"), "the", *CPU).error == (
        "the memory did not suffice; shorten the text, or lower --beam or --top"
    )


def test_more_than_memory_and_pictures_take_is_refused(
    headlights: Command, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlights.cli.watching.MOST_WEIGHTS", 1000)
    monkeypatch.setattr("headlights.cli.heads.MOST_PICTURED", 70)
    assert headlights("view", made("Bert"), LONG, "--all", *CPU).error == (
        "--all: 6 heads have 36,504 weights over this text; expected at most 1,000; "  # 2 · 3 · 78²
        "keep the largest of each row with --top 8"
    )
    assert headlights("view", made("Bert"), LONG, "--svg", tmp_path / "a.svg", *CPU).error == (
        f"--svg {tmp_path}/a.svg: 78 × 78 words are too many for a picture with each word; expected at most "
        "70 a side; write a page with --html"
    )


def test_text_files_that_cannot_be_read_are_refused(headlights: Command, made: Made, tmp_path: Path) -> None:
    path = tmp_path / "text"
    assert headlights("view", made("Bert"), "--text-file", path).error == f"{path}: No such file or directory"
    path.write_bytes(b"the \xff")
    assert headlights("view", made("Bert"), "--text-file", path).error == (
        f"--text-file {path}: is not UTF-8 at byte 5"
    )


def test_pickles_are_not_opened(headlights: Command, made: Made, tmp_path: Path) -> None:
    folder = copied(made, tmp_path)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    error = headlights("view", folder, "the", *CPU).error
    assert error.startswith(
        f"{folder}: pytorch_model.bin is a pickle, which may run anything when opened, so it is not opened; "
        f"if you trust it, convert it in Python: transformers.AutoModel.from_pretrained('{folder}')"
    )
    (folder / "pytorch_model.bin").unlink()
    assert headlights("view", folder, "the", *CPU).error == (
        f"{folder} holds no weights: model.safetensors is missing; copy the folder again"
    )


def test_code_in_the_folder_is_not_run(
    headlights: Command, made: Made, tmp_path: Path, no_network: None
) -> None:
    marker = tmp_path / "ran"
    code = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    folder = copied(made, tmp_path, auto_map=code)
    (folder / "own.py").write_text(f"open({str(marker)!r}, 'w')\n")
    assert headlights("view", folder, "the cat", *CPU).status == 0  # by the library's own code for its kind
    config = json.loads((folder / "config.json").read_text()) | {"model_type": "own"}
    (folder / "config.json").write_text(json.dumps(config))
    assert headlights("view", folder, "the cat", *CPU).error.startswith(
        f"{folder}: transformers cannot load it: "
    )
    assert not marker.exists()


def test_broken_folders_are_refused(
    headlights: Command, made: Made, tmp_path: Path, no_network: None
) -> None:
    folder = copied(made, tmp_path)
    for content in ("{", '{"version": "1.0"}'):
        (folder / "tokenizer.json").write_text(content)
        error = headlights("view", folder, "the", *CPU).error
        assert error.startswith(f"{folder}: transformers cannot load its tokenizer: ")
    save_tokenizer(folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:1000])
    assert headlights("view", folder, "the", *CPU).error.startswith(
        f"{folder}: transformers cannot load it: "
    )


def test_transformers_keeps_quiet_and_is_left_as_it_was(headlights: Command, made: Made, quiet: None) -> None:
    folder, logging = made("Bert"), transformers.utils.logging
    logging.enable_progress_bar()
    before = logging.get_verbosity()
    try:
        assert headlights("view", folder, "the cat", *CPU).errors == ""
        assert logging.is_progress_bar_enabled()
        assert logging.get_verbosity() == before
    finally:
        logging.disable_progress_bar()


def test_missing_weights_are_not_made_up(headlights: Command, made: Made, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = copied(made, tmp_path)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in (
        "encoder.layer.1.attention.self.query.weight",
        "pooler.dense.weight",
    ):  # the pooler attends not
        del tensors[name]
    save_file(tensors, path, {"format": "pt"})
    assert headlights("view", folder, "the", *CPU).error == (
        f"{folder}: 1 tensors are missing, such as encoder.layer.1.attention.self.query.weight, and would be "
        "random; expected the weights of the whole model"
    )


def test_models_without_attention_or_text_are_refused(
    headlights: Command, made: Made, tmp_path: Path
) -> None:
    error = headlights("view", made("Mamba"), "the", *CPU).error
    assert error.startswith(f"{made('Mamba')}: cannot be watched: model: found no attention weights")
    config: Any = transformers.ViTConfig(
        hidden_size=6, num_hidden_layers=1, num_attention_heads=1, image_size=4
    )
    config.patch_size = config.intermediate_size = 2
    folder = tmp_path / "vit"
    transformers.ViTModel(config).save_pretrained(folder)
    assert (
        headlights("view", folder, "the", *CPU).error == f"{folder}: a vit model takes pixel_values, not text"
    )


def test_texts_without_tokens_and_decoders_without_a_start_are_refused(
    headlights: Command, made: Made, tmp_path: Path
) -> None:
    from tokenizers import Tokenizer, normalizers

    folder = copied(made, tmp_path, "T5", decoder_start_token_id=None)
    (folder / "generation_config.json").unlink()
    assert headlights("view", folder, "the", "--target", "cat", *CPU).error == (
        f"{folder}: config.json has no decoder_start_token_id; the decoder needs one"
    )
    error = headlights("view", folder, "the", *CPU).error
    assert error.startswith(f"{folder}: cannot generate; give the target with --target: ")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Replace("the", "")
    tokenizer.save(str(folder / "tokenizer.json"))
    assert headlights("view", folder, "the", *CPU).error == (
        f"{folder}: its tokenizer finds no token in the text"
    )


def test_a_missing_extra_is_named(headlights: Command, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert headlights("view", made("Bert"), "the", *CPU).error == (
        "viewing a Hugging Face model needs transformers: pip install 'headlights[hf]'"
    )


def test_a_folder_without_a_tokenizer_is_refused(headlights: Command, made: Made, tmp_path: Path) -> None:
    """Transformers would make up one that knows no word, and every token would be [UNK]."""
    folder = copied(made, tmp_path)
    for path in folder.glob("*token*"):
        path.unlink()
    assert headlights("view", folder, "the cat", *CPU).error == (
        f"{folder} holds no tokenizer, such as tokenizer.json; copy the folder again"
    )
