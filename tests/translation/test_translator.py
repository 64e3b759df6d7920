"""The translator: order, blank lines, words and their alignment, and attention that fits its tokens."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights.translation import translator as module
from headlights.translation.architectures import RecurrentConfig
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.folders import ModelFolder
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.model import TranslationModel
from headlights.translation.tokenizer import Tokenizer
from headlights.translation.translations import Translation
from headlights.translation.translator import Translator
from headlights.translation.words import words
from tests.translation.toy import many_heads

ENGLISH = [
    "The cat sits on the mat.",
    "A dog sleeps.",
    "The table has data.",
    "The red cat sleeps on the table.",
]
ITALIAN = ["Il gatto siede sul tappeto.", "Un cane dorme.", "La tabella ha dati.", "L'uomo dorme."]
ODD = [
    "The cat sits on the mat.",
    "",
    "supercalifragilistico" * 7,
    " \t ",
    "<pad> </s> <unk>",
    "\u00a0",
    "naïve 🙂‍↔️ 猫が寝る.",
    "  two   spaces  ",
    "مرحبا \u202e abc",
    "\u200b",
    "a",
]
FILLED = [0, 2, 4, 6, 7, 8, 10]
SIZES: dict[str, Any] = {"embed_dim": 5, "hidden_dim": 7, "encoder_dim": 3, "score_dim": 3, "dropout": 0.2}


def build(kind: Any = "bpe", *, ends: float = 0.5, lowercase: bool = False, **options: Any) -> Translator:
    """An untrained translator: some of its sentences end, some are cut; a lower `ends` makes them longer."""
    source = Tokenizer.train(ENGLISH, kind=kind, vocab_size=290, lowercase=lowercase)
    target = Tokenizer.train(ITALIAN, kind=kind, vocab_size=290, lowercase=lowercase)
    torch.manual_seed(5)
    model = TranslationModel(RecurrentConfig(**SIZES, **options), source.vocab_size, target.vocab_size)
    with torch.no_grad():  # as they come, untrained models write one token again and again
        for embedding in (model.encoder.embedding, model.decoder.embedding):
            embedding.weight.mul_(0.5)
        assert isinstance(model.decoder, RecurrentDecoder)
        for layer in (model.decoder.readout, model.decoder.output):
            layer.weight.mul_(4.0)
        model.decoder.output.bias[target.eos_id] += ends
    return Translator(ModelFolder(model, source, target, {}), device="cpu")


@pytest.fixture(scope="module", params=["additive", "bilinear", "none"])
def translator(request: pytest.FixtureRequest) -> Translator:
    return build(score=request.param)


def sentences_encoded(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts sentences that reach the encoder, one number a call."""
    calls: list[int] = []
    forward = translator.model.encoder.forward

    def spy(ids: Tensor, lengths: Tensor) -> Any:
        calls.append(len(ids))
        return forward(ids, lengths)

    monkeypatch.setattr(translator.model.encoder, "forward", spy)
    return calls


def same(one: Translation, other: Translation) -> bool:
    """Whether all but rounding agrees."""
    return (
        (one.text, one.words, one.tokens, one.source_words)
        == (other.text, other.words, other.tokens, other.source_words)
        and one.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
        and one.normalised_score == pytest.approx(other.normalised_score, rel=1e-5, abs=1e-5)
    )


def test_without_alignment_the_text_is_the_same(translator: Translator) -> None:
    for plain, whole in zip(
        translator.translate(ODD, beam=2, n_best=2, alignment=False),
        translator.translate(ODD, beam=2, n_best=2),
        strict=True,
    ):
        assert same(plain, whole)
        assert len(plain.alternatives) == len(whole.alternatives)
        assert (plain.weights, plain.alignment, plain.attention) == (None, (), None)


@pytest.mark.parametrize("needs", [{"replace_unknown": True}, {"attention": True}, {"align_head": (0, 0)}])
def test_what_needs_alignment_does_not_go_without(needs: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"^alignment=False leaves replace_unknown, attention and align_head"
    ):
        build().translate(["a"], alignment=False, **needs)


@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
@pytest.mark.parametrize("workers", [1, 3])
def test_order_is_kept_whatever_the_batches(translator: Translator, batch_tokens: int, workers: int) -> None:
    found = translator.translate(ODD, beam=2, batch_tokens=batch_tokens, workers=workers)
    assert len(found) == len(ODD)
    for line, translation in zip(ODD, found, strict=True):
        assert same(translation, translator.translate([line], beam=2)[0])
        if translation.tokens:
            assert translation.source_words == tuple(word.text for word in words(line))


def test_case21_blank_lines_never_meet_the_model(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = sentences_encoded(translator, monkeypatch)
    found = translator.translate(ODD, beam=1)
    assert sum(calls) == len(FILLED)
    assert [i for i, translation in enumerate(found) if translation.tokens] == FILLED
    calls.clear()
    for translation in [
        *translator.translate(["", "\t", "\u00a0"]),
        *translator.align([" ", "a"], ["b", ""]),
    ]:
        assert (translation.words, translation.alignment, translation.alternatives) == ((), (), ())
        assert translation.weights is translation.attention is None
    assert [translation.text for translation in translator.translate(["", "\t", "\u00a0"])] == ["", "", ""]
    assert translator.translate([]) == translator.align([], []) == []
    assert calls == []


def test_n_best_are_alternatives_of_the_first(translator: Translator) -> None:
    for one, several in zip(
        translator.translate(ODD, beam=4), translator.translate(ODD, beam=4, n_best=3), strict=True
    ):
        assert same(one, several)
        assert one.alternatives == ()
        everything = [several, *several.alternatives]
        assert len(everything) <= 3
        assert all(other.alternatives == () for other in several.alternatives)
        assert len({translation.tokens for translation in everything}) == len(everything)
        assert all(other.source_words == several.source_words for other in several.alternatives)
    assert any(len(t.alternatives) == 2 for t in translator.translate(ODD, beam=4, n_best=3))


@pytest.mark.parametrize("ends", [-30.0, 0.5, 30.0], ids=["cut", "some end", "at once"])
@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_attention_fits_tokens_and_weights_fit_words(kind: str, ends: float) -> None:
    translator = build(kind, ends=ends)
    found = translator.translate(ODD, beam=2, attention=True)
    for index in FILLED:
        translation = found[index]
        assert translation.attention is not None
        assert translation.weights is not None
        assert translation.attention.shape == (
            (1, 1, len(translation.tokens), len(translation.source_tokens))
        )
        assert torch.allclose(translation.attention.sum(-1), torch.ones(()), atol=1e-5)
        assert translation.weights.shape == (len(translation.words), len(translation.source_words))
        assert all(
            0 <= source < len(translation.source_words) and 0 <= target < len(translation.words)
            for source, target in translation.alignment
        )
        assert translation.source_tokens[-1] == "</s>"
    end_marks = {found[index].tokens[-1] == "</s>" for index in FILLED}
    assert end_marks == {-30.0: {False}, 0.5: {True, False}, 30.0: {True}}[ends]
    assert any(found[index].words for index in FILLED) == (ends != 30.0)
    assert all(translation.attention is None for translation in translator.translate(ODD, beam=2))


def test_a_model_without_attention_has_no_alignment() -> None:
    translator = build(score="none")
    for translation in [
        *translator.translate(ENGLISH, attention=True),
        *translator.align(ENGLISH, ITALIAN, attention=True),
    ]:
        assert translation.alignment == ()
        assert translation.weights is None
        assert translation.attention is None
        assert translation.words
        assert translation.source_words


def forced(translator: Translator, source: str, target: str) -> tuple[float, Tensor]:
    """Score and token attention (N, M) of one pair, straight from the decoder."""
    read = [*translator.source_tokenizer.encode(source).ids, translator.source_tokenizer.eos_id]
    written = [*translator.target_tokenizer.encode(target).ids, translator.target_tokenizer.eos_id]
    model = translator.model
    memory = model.encoder(torch.tensor([read]), torch.tensor([len(read)]))
    ids = torch.tensor([[translator.target_tokenizer.bos_id, *written[:-1]]])
    decoded = model.decoder(ids, memory, need_weights=True)
    log_probabilities = model.decoder.project(decoded.states)[0].log_softmax(-1)
    score = sum(float(log_probabilities[t, token]) for t, token in enumerate(written))
    assert decoded.weights is not None
    return score, decoded.weights[0, :, 0, 0]


def can_be_forced(found: Translation) -> bool:
    """Whether it has words, an end, and a text of the same words: "L'" before no letter is read as two."""
    ended = found.tokens[-1:] == ("</s>",)
    return ended and found.words != () and tuple(word.text for word in words(found.text)) == found.words


@pytest.mark.parametrize("batch_tokens", [10, 4096])
def test_align_forces_given_translations(batch_tokens: int) -> None:
    translator = build()
    found = translator.align(ENGLISH, ITALIAN, attention=True, batch_tokens=batch_tokens)
    for source, target, translation in zip(ENGLISH, ITALIAN, found, strict=True):
        with torch.no_grad():
            score, attention = forced(translator, source, target)
        assert translation.text == target
        assert translation.words == tuple(word.text for word in words(target))
        assert translation.source_words == tuple(word.text for word in words(source))
        assert translation.score == pytest.approx(score, abs=1e-4)
        assert translation.normalised_score == pytest.approx(score / len(translation.tokens), abs=1e-4)
        assert translation.attention is not None
        assert torch.allclose(translation.attention[0, 0], attention, atol=1e-6)


def test_align_merges_pieces_into_words() -> None:
    translator = build()
    source, target = "The dog has a mat.", "Il dorme tappeto."
    (translation,) = translator.align([source], [target])
    with torch.no_grad():
        _, attention = forced(translator, source, target)
    owners = [
        tokenizer.encode(text).word_of_piece
        for tokenizer, text in ((translator.target_tokenizer, target), (translator.source_tokenizer, source))
    ]
    assert len(owners[1]) > len(translation.source_words)  # there is something to merge
    expected = []
    for word in range(4):
        rows = [n for n, owner in enumerate(owners[0]) if owner == word]
        expected.append(
            [
                sum(float(attention[n, m]) for n in rows for m, of in enumerate(owners[1]) if of == other)
                / len(rows)
                for other in range(6)
            ]
        )
    assert translation.weights is not None
    assert torch.allclose(translation.weights, torch.tensor(expected), atol=1e-6)
    best = [row.index(max(row)) for row in expected]
    assert translation.alignment == tuple((source, target) for target, source in enumerate(best))


@pytest.mark.parametrize("folder", ["gru", "lstm", "transformer"])
def test_short_numbers_find_scores_close_to_those_of_long_ones(folder: str) -> None:
    """bfloat16 has 8 bits of fraction: a relative error of 2^-8 in each of many sums."""
    long = Translator(many_heads(), device="cpu") if folder == "transformer" else build(cell=folder)
    pairs = ["red cat", "old dog runs"], ["gatto rosso", "cane vecchio corre"]
    expected = long.align(*pairs)
    whole = ModelFolder(long.model, long.source_tokenizer, long.target_tokenizer, {})
    short = Translator(whole, device="cpu", dtype=torch.bfloat16)  # the model itself becomes short
    assert {each.dtype for each in short.model.parameters()} == {torch.bfloat16}
    for found, exact in zip(short.align(*pairs), expected, strict=True):
        assert found.score == pytest.approx(exact.score, rel=0.03)
        assert found.score != exact.score
    assert len(short.translate(pairs[0], beam=3)) == 2


def test_whole_numbers_translate_nothing() -> None:
    with pytest.raises(ValueError, match=r"^dtype must be torch.float32, torch.bfloat16 or torch.float64"):
        Translator(many_heads(), dtype=torch.int8)


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_case19_align_shows_words_as_they_were_typed(kind: str, lowercase: bool) -> None:
    translator = build(kind, lowercase=lowercase)
    source, target = "The Zwornikdal sits , İstanbul.", "Il Zwornikdal dorme , İstanbul."
    (translation,) = translator.align([source], [target])
    assert translation.text == target
    assert translation.words == ("Il", "Zwornikdal", "dorme", ",", "İstanbul", ".")
    assert translation.source_words == ("The", "Zwornikdal", "sits", ",", "İstanbul", ".")
    assert [target for _, target in translation.alignment] == [0, 1, 2, 3, 4, 5]


def test_a_translation_scores_as_its_forcing_does() -> None:
    translator = build("word", ends=1.5)
    unk_id = translator.target_tokenizer.unk_id
    assert unk_id is not None
    with torch.no_grad():
        translator.model.decoder.output.bias[unk_id] = -30.0
    lines = [ODD[index] for index in FILLED]
    best = translator.translate(lines, beam=3, n_best=3)
    everything = [
        (line, each) for line, one in zip(lines, best, strict=True) for each in (one, *one.alternatives)
    ]
    ended = [(line, each) for line, each in everything if can_be_forced(each)]
    assert len({len(each.words) for _, each in ended}) >= 3
    for line, found in ended:
        (again,) = translator.align([line], [found.text], attention=True)
        assert again.words == found.words
        assert again.score == pytest.approx(found.score, abs=1e-4)
        assert again.normalised_score == pytest.approx(found.normalised_score, abs=1e-4)
        assert again.alignment == found.alignment


def test_words_whose_token_belongs_to_another_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # Inside numbers a comma is part of the word, so that " 1," is learned; alone it is a word and a comma.
    translator = build()
    translator.target_tokenizer = Tokenizer.train(["1,2 1,3 1,4 1,5"] * 3, vocab_size=270)
    piece = next(
        n
        for n in range(3, translator.target_tokenizer.vocab_size)
        if len(translator.target_tokenizer.decode_words([n]).words) == 2
    )
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]]])

    def find(*args: Any, **options: Any) -> Sequence[Sequence[Hypothesis]]:
        return [[Hypothesis((piece,), -1.0, -0.5, weights)]]

    monkeypatch.setattr(module, "search", find)
    translator.source_tokenizer = Tokenizer.train(["cat sits"], kind="word", vocab_size=9)
    (translation,) = translator.translate(["cat sits"])
    assert translation.words == ("1", ",")
    assert translation.weights is not None
    assert translation.weights.tolist() == [[0.5, 0.25], [0.0, 0.0]]
    assert translation.alignment == ((0, 0),)


def test_a_saved_folder_translates_alike_and_without_dropout(tmp_path: Path) -> None:
    translator = build()
    folder = ModelFolder(
        translator.model.train(), translator.source_tokenizer, translator.target_tokenizer, {"seed": 3}
    )
    folder.save(tmp_path / "model")
    loaded = Translator.load(tmp_path / "model", device="cpu")
    assert loaded.training == {"seed": 3}
    translator.model.eval()
    for one, other in zip(translator.translate(ENGLISH), loaded.translate(ENGLISH), strict=True):
        assert same(one, replace(other))


def test_refusals() -> None:
    translator = build()
    with pytest.raises(
        TypeError, match=r"lines must be a list of texts, got one text; give \['A dog sleeps.'\]"
    ):
        translator.translate("A dog sleeps.")
    with pytest.raises(TypeError, match=r"lines\[1\] must be a text, got NoneType; give '' where"):
        translator.translate(["A", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"targets\[0\] must be a text, got float"):
        translator.align(["A"], [math.nan])  # type: ignore[list-item]  # as pandas has a missing text
    with pytest.raises(TypeError, match="sources must be a list of texts"):
        translator.align("A", ["B"])
    with pytest.raises(TypeError, match="targets must be a list of texts"):
        translator.align(["A"], "B")
    with pytest.raises(ValueError, match="align needs one target per source, got 2 sources, 1 targets"):
        translator.align(["A", "B"], ["C"])
    with pytest.raises(ValueError, match=r"n_best must be between 1 and beam \(2\), got 3"):
        translator.translate(["A"], beam=2, n_best=3)
    with pytest.raises(ValueError, match="batch_tokens must be at least 1, got 0"):
        translator.translate(["A"], batch_tokens=0)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        translator.translate(["A"], workers=0)
    translator.device = torch.device("cuda")
    with pytest.raises(ValueError, match="workers are for a processor, got 2 on cuda; leave it out"):
        translator.translate(["A"], workers=2)


def test_case19_unknown_words_are_copied_from_the_source_if_asked_for() -> None:
    translator = build("word")
    unk = translator.target_tokenizer.unk_id
    assert unk is not None
    with torch.no_grad():
        assert isinstance(translator.model.decoder, RecurrentDecoder)
        translator.model.decoder.output.bias[unk] += 3.0
    lines = ["The Zwornikdal sits on the mat.", "", "Oberkessach sleeps."]
    plain = translator.translate(lines, beam=3, n_best=2)
    copied = translator.translate(lines, beam=3, n_best=2, replace_unknown=True)
    assert any("<unk>" in each.words for one in plain for each in (one, *one.alternatives))
    for one, other in zip(plain, copied, strict=True):
        assert (one.tokens, one.alignment, one.score) == (other.tokens, other.alignment, other.score)
        for before, after in zip((one, *one.alternatives), (other, *other.alternatives), strict=True):
            if before.weights is None:  # of the blank line
                assert (before.text, after.text) == ("", "")
                continue
            expected = [
                after.source_words[int(before.weights[place].argmax())] if word == "<unk>" else word
                for place, word in enumerate(before.words)
            ]
            assert list(after.words) == expected
            assert [word.text for word in words(after.text)] == expected


def test_copying_unknown_words_needs_attention() -> None:
    with pytest.raises(ValueError, match="replace_unknown: the model was trained without attention; leave"):
        build("word", score="none").translate(["A"], replace_unknown=True)
    with pytest.raises(ValueError, match="replace_unknown: a vocabulary of pieces writes any word; leave it"):
        build("bpe").translate(["A"], replace_unknown=True)


def test_coverage_penalty_ranks_and_needs_attention() -> None:
    line = "The red cat sleeps on the table."
    plain, ranked = (
        build(ends=6.0).translate([line], beam=4, coverage_penalty=penalty)[0] for penalty in (0.0, 9.0)
    )
    assert plain.normalised_score > ranked.normalised_score
    with pytest.raises(ValueError, match="coverage_penalty needs a decoder with attention"):
        build(score="none").translate([line], coverage_penalty=0.1)
