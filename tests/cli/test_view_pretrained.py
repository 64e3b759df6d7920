"""`headlights view` of Hugging Face models built from small random configurations; nothing is downloaded."""

import io
import shutil
import sys
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headlights import view
from tests.cli.conftest import Command
from tests.cli.pretrained_models import (
    CAT,
    EOS,
    PAD,
    POSITIONS,
    SLEEPS,
    THE,
    WORDS,
    Made,
    copied,
    save_tokenizer,
)

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")

TEXT = "the cat sleeps </script> the"
LONG = "the cat sleeps on the mat " * 13  # 78 tokens
CPU = ("--device", "cpu")


def eager(folder: Path, pair: bool = False) -> Any:
    """The model in float64, computing attention by hand."""
    kind: Any = transformers.AutoModelForSeq2SeqLM if pair else transformers.AutoModel
    return kind.from_pretrained(folder, attn_implementation="eager").double().eval()


def stacked(attentions: Any) -> Any:
    return torch.stack([weights[0] for weights in attentions]).detach().numpy()


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Roberta", "Albert", "GPT2", "Llama"])
def test_saved_weights_are_those_of_the_eager_model(
    headlights: Command, made: Made, tmp_path: Path, no_network: None, kind: str
) -> None:
    folder, saved = made(kind), tmp_path / "a.safetensors"
    status, output, errors = headlights("view", folder, TEXT, "--save", saved, *CPU)
    assert (status, errors) == (0, "")
    assert f"weights: {saved}" in output
    ids = torch.tensor([[THE, CAT, SLEEPS, WORDS.index("</script>"), THE]])
    with torch.no_grad():
        expected = stacked(eager(folder)(input_ids=ids, output_attentions=True).attentions)
    attention = view.load_attention(saved)
    assert attention.source == attention.target == tuple(TEXT.split())
    assert attention.weights.shape == expected.shape
    np.testing.assert_allclose(attention.weights, expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("kind", ["T5", "Marian"])
@pytest.mark.parametrize("part", ["cross", "encoder", "decoder"])
def test_parts_of_an_encoder_and_decoder_are_those_of_the_eager_model(
    headlights: Command, made: Made, tmp_path: Path, no_network: None, kind: str, part: str
) -> None:
    folder, saved = made(kind), tmp_path / "a.npz"
    options = ("--target", "cat the mat", "--part", part, "--save", saved, *CPU)
    assert headlights("view", folder, TEXT, *options).errors == ""
    source = torch.tensor([[THE, CAT, SLEEPS, WORDS.index("</script>"), THE]])
    read = torch.tensor([[PAD, CAT, THE]])  # the start, then all words but the last
    with torch.no_grad():
        found = eager(folder, pair=True)(input_ids=source, decoder_input_ids=read, output_attentions=True)
    words = {
        "cross": (TEXT.split(), ["cat", "the", "mat"]),
        "encoder": (TEXT.split(), TEXT.split()),
        "decoder": (["[PAD]", "cat", "the"], ["[PAD]", "cat", "the"]),
    }
    attention = view.load_attention(saved)
    assert (list(attention.source), list(attention.target)) == words[part]
    expected = stacked(found[f"{part}_attentions"])
    np.testing.assert_allclose(attention.weights, expected, rtol=0, atol=2e-6)
    assert attention.title == f"{part}: {TEXT} → cat the mat"


def test_decoder_writes_the_target_if_none_is_given(headlights: Command, made: Made, tmp_path: Path) -> None:
    saved, page = tmp_path / "a.json", tmp_path / "a.html"
    options = ("--beam", "1", "--save", saved, "--html", page, *CPU)
    assert headlights("view", made("Marian"), "the cat", *options).errors == ""
    model: Any = transformers.MarianMTModel.from_pretrained(made("Marian"))
    longest = 2 * 2 + 20  # twice the two tokens and some
    written = model.generate(torch.tensor([[THE, CAT]]), num_beams=1, do_sample=False, max_new_tokens=longest)
    attention = view.load_attention(saved)
    assert list(attention.target) == [WORDS[number] for number in written[0, 1:].tolist()]
    assert attention.target[-1] == WORDS[EOS]
    assert page.read_text("utf-8").count("<h2>") == 3


def test_heads_are_picked_for_terminal_and_picture(headlights: Command, made: Made, tmp_path: Path) -> None:
    folder, saved = made("GPT2"), tmp_path / "a.json"
    assert headlights("view", folder, TEXT, "--save", saved, *CPU).status == 0
    weights = view.load_attention(saved).weights  # (L, H, N, M)
    words = TEXT.split()
    for options, expected in (
        ((), weights.mean((0, 1))),
        (("--layer", "2"), weights[1].mean(0)),
        (("--layer", "2", "--head", "3"), weights[1, 2]),
    ):
        picture = tmp_path / "a.svg"
        result = headlights("view", saved, *options, "--svg", picture)
        assert result.output.startswith(view.terminal(expected, words, words, color=False, width=80))
        assert picture.read_text("utf-8") == view.svg(expected, words, words)


def test_long_text_keeps_the_largest_and_is_summed_up(
    headlights: Command, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headlights.cli.heads.MOST_DRAWN", 50)
    monkeypatch.setenv("COLUMNS", "20")
    file, kept, whole = tmp_path / "text", tmp_path / "kept.npz", tmp_path / "whole.npz"
    file.write_text(LONG + "\n", encoding="utf-8")
    result = headlights("view", made("Bert"), "--text-file", file, "--save", kept, *CPU)
    assert headlights("view", made("Bert"), "--text-file", file, "--all", "--save", whole, *CPU).status == 0
    top, weights = view.load_attention(kept), view.load_attention(whole).weights
    assert top.values.shape == top.indices.shape == (2, 3, 78, 8)
    largest = np.sort(weights, -1)[..., ::-1][..., :8]
    np.testing.assert_allclose(top.values, largest, rtol=0, atol=1e-7)
    np.testing.assert_allclose(np.take_along_axis(weights, top.indices, -1), top.values, rtol=0, atol=1e-7)

    lines = result.output.splitlines()
    assert lines[0] == "78 × 78 words in 2 × 3 heads: too many to draw here; a page shows them: --html FILE"
    percent = [[f"{100 * head:.1f}" for head in layer] for layer in weights.max(-1).mean(-1)]
    # 20 columns have room for two heads beside the layer
    rows = [line.split() for line in lines[2:-1]]
    assert rows == [
        ["layer", "h1", "h2"],
        ["1", *percent[0][:2]],
        ["2", *percent[1][:2]],
        ["layer", "h3"],
        ["1", percent[0][2]],
        ["2", percent[1][2]],
    ]
    few = headlights("view", made("Bert"), "--text-file", file, "--top", "2", "--save", kept, *CPU)
    assert few.status == 0
    assert view.load_attention(kept).values.shape == (2, 3, 78, 2)


def test_mean_of_kept_weights_is_the_mean_of_what_they_are(
    headlights: Command, made: Made, tmp_path: Path
) -> None:
    folder, saved, picture = made("GPT2"), tmp_path / "a.npz", tmp_path / "a.svg"
    assert headlights("view", folder, TEXT, "--top", "2", "--save", saved, "--svg", picture, *CPU).status == 0
    top = view.load_attention(saved)
    total = np.zeros((5, 5))
    for layer in range(2):
        for head in range(3):
            for row in range(5):
                for value, place in zip(
                    top.values[layer, head, row], top.indices[layer, head, row], strict=True
                ):
                    if place >= 0:
                        total[row, place] += value / 6
    assert picture.read_text("utf-8") == view.svg(total.astype(np.float32), top.source, top.target)


def test_figures_show_each_head_or_the_one_picked(headlights: Command, made: Made, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the extra `view` is not installed")
    png, pdf = tmp_path / "a.png", tmp_path / "a.pdf"
    sizes = []
    for options in (
        (),
        ("--layer", "1", "--head", "2"),
        ("--top", "2"),
        ("--top", "2", "--layer", "1", "--head", "2"),
    ):
        result = headlights("view", made("Bert"), TEXT, *options, "--png", png, "--pdf", pdf, *CPU)
        assert (result.status, result.errors) == (0, "")
        assert f"figure: {png}" in result.output
        content = png.read_bytes()
        assert content.startswith(b"\x89PNG")
        assert pdf.read_bytes().startswith(b"%PDF")
        sizes.append((int.from_bytes(content[16:20]), int.from_bytes(content[20:24])))  # of the image header
    assert sizes[0] == sizes[2] != sizes[1] == sizes[3]
    folder = headlights("view", made("Bert"), TEXT, "--png", tmp_path, *CPU)
    assert folder.error == f"--png {tmp_path}: is a folder; expected a file to write"


def test_figures_without_matplotlib_are_refused_first(
    headlights: Command, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("headlights.view._heads")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    error = headlights("view", tmp_path, "the", "--png", tmp_path / "a.png", *CPU).error
    assert error.startswith("view.heads needs the package matplotlib")
    assert error.endswith(": pip install 'headlights[view]'")


def test_hostile_tokens_are_text(headlights: Command, made: Made, tmp_path: Path) -> None:
    page, picture = tmp_path / "a.html", tmp_path / "a.svg"
    text = " ".join(WORDS[3:])
    result = headlights("view", made("Bert"), text, "--html", page, "--svg", picture, *CPU)
    assert result.status == 0
    for content in (page.read_text("utf-8"), picture.read_text("utf-8"), result.output):
        assert "\u202e" not in content
        assert "⟨U+202E⟩det" in content
    written = page.read_text("utf-8")
    assert "<img" not in written
    assert written.count("</script>") == written.count("<script")


def test_bytes_are_shown_as_text(headlights: Command, made: Made, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder, saved = tmp_path / "model", tmp_path / "a.json"
    shutil.copytree(made("GPT2"), folder)
    vocabulary = {"the": 0, "Ġperché": 1, "ĠperchÃ©": 2, "<unk>": 3}  # é is the bytes Ã and ©
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    whole: Any = transformers.PreTrainedTokenizerFast
    whole(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(folder)
    assert headlights("view", folder, "the perché", "--save", saved, *CPU).status == 0
    assert view.load_attention(saved).source == ("the", " perché")


def test_what_a_tokenizer_gives_and_a_model_does_not_take_is_left_out(
    headlights: Command, made: Made, tmp_path: Path
) -> None:
    folder = copied(made, tmp_path, "Marian")
    save_tokenizer(folder, model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    assert "token_type_ids" in transformers.AutoTokenizer.from_pretrained(folder)("the cat")
    plain = headlights("view", made("Marian"), "the cat", *CPU)
    assert headlights("view", folder, "the cat", *CPU) == plain
    assert plain.status == 0


def test_text_comes_from_standard_input(
    headlights: Command, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n")))
    result = headlights("view", made("Bert"), "--text-file", "-", *CPU)
    assert result.output == headlights("view", made("Bert"), "the cat", *CPU).output != ""


def test_texts_are_cut_to_the_models_positions_if_asked(
    headlights: Command, made: Made, tmp_path: Path
) -> None:
    text, saved = "the " * 99, tmp_path / "a.npz"
    for kind, most in (("Bert", POSITIONS), ("Roberta", POSITIONS - 2)):  # padding, and all before it
        folder = made(kind)
        assert headlights("view", folder, text, *CPU).error == (
            f"the text has 99 tokens and {folder} takes at most {most}; shorten it, or cut it with --truncate"
        )
        result = headlights("view", folder, text, "--truncate", "--save", saved, *CPU)
        assert (result.status, result.errors) == (0, f"the text is cut from 99 to {most} tokens\n")
        assert len(view.load_attention(saved).source) == most
    assert headlights("view", made("T5"), text, "--target", "the cat", *CPU).status == 0  # has no limit
    error = headlights("view", made("Marian"), "the", "--target", text, *CPU).error
    assert error.startswith("the target has 99 tokens and ")


def test_page_is_opened(
    headlights: Command, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def browse(address: str) -> bool:
        opened.append(address)
        return len(opened) == 1

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr("headlights.cli.view.mkdtemp", lambda prefix: str(tmp_path))
    page = tmp_path / "attention.html"
    result = headlights("view", made("Bert"), TEXT, "--open", *CPU)
    assert (result.status, result.errors) == (0, "")
    assert f"page: {page}" in result.output
    assert page.exists()
    again = headlights("view", made("Bert"), TEXT, "--html", tmp_path / "b.html", "--open", *CPU)
    assert again.status == 0
    assert again.errors == f"--open: found no browser; open {tmp_path}/b.html in one\n"
    assert opened == [page.as_uri(), (tmp_path / "b.html").as_uri()]
