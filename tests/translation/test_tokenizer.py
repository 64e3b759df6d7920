import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headlights.translation import _pieces
from headlights.translation.tokenizer import Encoded, Tokenizer
from headlights.translation.words import words

unhurried = settings(deadline=None)  # the machine may be busy

TEXTS = [
    "The cat sits on the mat. The cat's mat is the cat's.",
    "L'uomo siede sul tavolo; dell'acqua è sul tappeto.",
    "Über die Straße, ÜBER DIE STRASSE, 👩‍🔬 und 👩‍🔬.",
    "<pad> <bos> <eos> <unk> </s> <pad> <bos> <eos> <unk> </s> <s> ▁the ▁the",
] * 3
BPE = Tokenizer.train(TEXTS, vocab_size=331)
BPE_LOWER = Tokenizer.train(TEXTS, vocab_size=331, lowercase=True)
WORD = Tokenizer.train(TEXTS, kind="word", vocab_size=43)
WORD_LOWER = Tokenizer.train(TEXTS, kind="word", vocab_size=43, lowercase=True)
ALL = [
    pytest.param(BPE, id="bpe"),
    pytest.param(BPE_LOWER, id="bpe lower"),
    pytest.param(WORD, id="word"),
    pytest.param(WORD_LOWER, id="word lower"),
]

any_text = st.text() | st.text(alphabet="theca t's ÜİΣ'’\u0301👩\u200d🔬<pad>▁\n\t\u2028\x00Ġ")


@unhurried
@given(any_text)
@example("")
@example(" ")
@example("  the  cat \n")
@example("</s><pad><eos>")
@example("\u0301▁Ġ\x00\U0010ffff")
def test_any_text_comes_back_exactly(text: str) -> None:
    assert BPE.decode(BPE.encode(text).ids) == text


@unhurried
@given(any_text)
@example("İİ İstanbul'da ΑΣ'Α ΑΣ.")
def test_lower_case_text_comes_back_as_python_lowers_it(text: str) -> None:
    assert BPE_LOWER.decode(BPE_LOWER.encode(text).ids) == text.lower()


@unhurried
@given(any_text)
def test_text_never_becomes_a_special_token(text: str) -> None:
    for tokenizer in (BPE, BPE_LOWER, WORD, WORD_LOWER):
        special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
        assert not special & set(tokenizer.encode(text).ids)
    for token in ("<pad>", "<bos>", "<eos>", "<unk>"):
        assert len(WORD.encode(token + text).ids) >= 3


@unhurried
@given(any_text)
def test_the_pieces_of_a_word_spell_the_word(text: str) -> None:
    encoded = BPE.encode(text)
    own: dict[int | None, list[int]] = {}
    for piece, owner in zip(encoded.ids, encoded.word_of_piece, strict=True):
        own.setdefault(owner, []).append(piece)
    space = BPE.encode("x").ids[0]
    assert not BPE.decode([space, *own.pop(None, [])]).strip()
    assert {owner: BPE.decode(ids) for owner, ids in own.items()} == dict(
        enumerate(w.text for w in words(text))
    )
    assert list(encoded.words) == words(text)


@unhurried
@given(any_text)
def test_decoded_words_are_the_encoded_ones(text: str) -> None:
    encoded = BPE.encode(text)
    assert BPE.decode_words(encoded.ids) == encoded


def test_words_of_multi_byte_pieces_written_out() -> None:
    tokenizer = Tokenizer.train([], vocab_size=259)  # bytes alone
    encoded = tokenizer.encode("è 日l'o")
    # a space, then the two bytes of è; a space, then the three of 日 and of l'; then o
    assert encoded.word_of_piece == (0, 0, 0, 1, 1, 1, 1, 1, 1, 2)
    assert [word.text for word in encoded.words] == ["è", "日l'", "o"]
    assert tokenizer.pieces(encoded.ids) == [
        "▁",
        r"\xc3",
        r"\xa8",
        "▁",
        r"\xe6",
        r"\x97",
        r"\xa5",
        "l",
        "'",
        "o",
    ]


def test_a_piece_across_words_belongs_to_the_one_it_covers_most(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer.train(["ab"] * 3, vocab_size=261).save(path)
    raw = json.loads(path.read_text())
    assert raw["model"]["merges"] == [["a", "b"], ["Ġ", "ab"]]
    raw["model"]["merges"] = [["a", "b"], [".", "ab"], ["a", "."]]
    raw["model"]["vocab"] = {token: number for token, number in raw["model"]["vocab"].items() if number < 259}
    raw["model"]["vocab"] |= {"ab": 259, ".ab": 260, "a.": 261}
    path.write_text(json.dumps(raw))
    tokenizer = Tokenizer.load(path)
    # "ab.ab" is the words "ab", "." and "ab"; the second piece has one byte in word 1, two in 2.
    assert tokenizer.decode_words([259, 260]).word_of_piece == (0, 2)
    # "a.a." has four words, and each piece one byte in two of them: of equals the first wins.
    assert tokenizer.decode_words([261, 261]).word_of_piece == (0, 2)


def test_broken_bytes_are_places_of_their_own() -> None:
    first_of_three, letter = BPE.encode("日").ids[1], BPE.encode("xA").ids[-1]
    decoded = BPE.decode_words([first_of_three, letter, first_of_three])
    assert BPE.decode(decoded.ids) == "\ufffdA\ufffd"
    assert decoded.word_of_piece == (0, 1, 2)


@unhurried
@given(st.lists(st.integers(0, BPE.vocab_size - 1)))
def test_any_ids_decode_and_have_words(ids: list[int]) -> None:
    decoded = BPE.decode_words(ids)
    text = BPE.decode(ids)
    assert decoded.ids == tuple(ids)
    assert list(decoded.words) == words(text)
    assert len(decoded.word_of_piece) == len(ids) == len(BPE.pieces(ids))
    assert all(owner is None or owner < len(decoded.words) for owner in decoded.word_of_piece)
    assert all(BPE.pieces(ids))
    owners = [owner for owner in decoded.word_of_piece if owner is not None]
    assert owners == sorted(owners)


def test_special_ids_leave_no_text_and_belong_to_no_word() -> None:
    for tokenizer in (BPE, WORD):
        cat = tokenizer.encode("the cat").ids
        ids = [tokenizer.bos_id, *cat, tokenizer.eos_id, tokenizer.pad_id]
        assert tokenizer.decode(ids) == "the cat"
        assert tokenizer.decode_words(ids).word_of_piece == (None, 0, 1, None, None)
        assert tokenizer.pieces(ids)[-2:] == ["<eos>", "<pad>"]
    assert (BPE.pad_id, BPE.bos_id, BPE.eos_id, BPE.unk_id, WORD.unk_id) == (0, 1, 2, None, 3)


def test_unknown_words_of_a_word_vocabulary() -> None:
    encoded = WORD.encode("The dog's cat sits.")
    assert [word.text for word in encoded.words] == ["The", "dog's", "cat", "sits", "."]
    assert encoded.word_of_piece == (0, 1, 2, 3, 4)
    assert encoded.ids[1] == WORD.unk_id
    assert WORD.decode(encoded.ids) == "The <unk> cat sits."
    assert WORD.decode_words(encoded.ids).words[1] == ("<unk>", 4, 9)


def test_a_word_vocabulary_keeps_the_commonest_words_ties_by_spelling() -> None:
    tokenizer = Tokenizer.train(["b a c b", "d d B"], kind="word", vocab_size=7)
    assert tokenizer.pieces(range(7)) == ["<pad>", "<bos>", "<eos>", "<unk>", "b", "d", "B"]
    lower = Tokenizer.train(["b a c b", "d d B"], kind="word", vocab_size=7, lowercase=True)
    assert lower.pieces(range(7))[4:] == ["b", "d", "a"]
    assert lower.encode("B").ids == lower.encode("b").ids
    assert lower.encode("İ b").words[0].text == "İ"


def test_words_keep_their_case_where_the_model_sees_none() -> None:
    encoded = BPE_LOWER.encode("THE Cat")
    assert [word.text for word in encoded.words] == ["THE", "Cat"]
    assert encoded.ids == BPE_LOWER.encode("the cat").ids


def test_training_learns_pieces_and_stays_within_its_size() -> None:
    assert BPE.vocab_size == 331
    assert BPE.pieces(BPE.encode("The cat").ids) == ["▁The", "▁cat"]
    assert Tokenizer.train(["to"], vocab_size=5000).vocab_size == 259  # a pair seen once is not learned
    assert Tokenizer.train([], kind="word", vocab_size=5).vocab_size == 4


def test_encode_batch_equals_one_by_one() -> None:
    assert BPE.encode_batch(iter(TEXTS)) == [BPE.encode(text) for text in TEXTS]


@pytest.mark.parametrize("tokenizer", ALL)
def test_saved_and_loaded_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    loaded = Tokenizer.load(path)
    assert [file.name for file in tmp_path.iterdir()] == ["tokenizer.json"]
    for name in ("kind", "lowercase", "vocab_size", "pad_id", "bos_id", "eos_id", "unk_id"):
        assert getattr(loaded, name) == getattr(tokenizer, name)
    for text in (*TEXTS, "İstanbul  zebra\n"):
        assert loaded.encode(text) == tokenizer.encode(text)
    every = range(tokenizer.vocab_size)
    assert loaded.decode(every) == tokenizer.decode(every)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kind", ["bpe", "word"])
def test_training_is_deterministic_across_processes(kind: str, tmp_path: Path) -> None:
    code = (
        "import sys; from headlights.translation.tokenizer import Tokenizer\n"
        f"Tokenizer.train({TEXTS!r}, kind={kind!r}, vocab_size=300).save(sys.argv[1])\n"
        "assert 'torch' not in sys.modules"
    )
    saved = []
    for seed in ("1", "2"):
        path = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", code, path], env=environment, capture_output=True, check=True
        )
        assert done.stdout == done.stderr == b""
        saved.append(path.read_bytes())
    assert saved[0] == saved[1]


def test_the_cache_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlights.translation.tokenizer._CACHE_LIMIT", 3)
    tokenizer = Tokenizer.train(TEXTS, vocab_size=300)
    many = " ".join(f"w{k}" for k in range(11))
    first: Encoded = tokenizer.encode(many)
    assert tokenizer.encode(many) == first
    assert len(tokenizer._cache) <= 3


def test_reading_errors_of_the_texts_come_through() -> None:
    def texts() -> Iterator[str]:
        yield "fine"
        raise OSError("disk on fire")

    for kind in ("bpe", "word"):
        with pytest.raises(OSError, match="disk on fire"):
            Tokenizer.train(texts(), kind=kind, vocab_size=300)


def test_lone_surrogates_are_refused() -> None:
    message = r"text must be valid Unicode, got the lone surrogate '\\ud800' at character 3; decode"
    for tokenizer in (BPE, WORD_LOWER):
        with pytest.raises(ValueError, match=message):
            tokenizer.encode("the\ud800")
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(["the\ud800"], vocab_size=300)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kind must be 'bpe' or 'word', got 'char'"):
        Tokenizer.train([], kind="char", vocab_size=300)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"vocab_size must be at least 259 for kind='bpe', got 258; a few"):
        Tokenizer.train([], vocab_size=258)
    with pytest.raises(ValueError, match=r"vocab_size must be at least 5 for kind='word', got 4; a few"):
        Tokenizer.train([], kind="word", vocab_size=4)


@pytest.mark.parametrize("tokenizer", ALL)
def test_ids_outside_the_vocabulary_are_refused(tokenizer: Tokenizer) -> None:
    size = tokenizer.vocab_size
    for wrong in (-1, size):
        for method in (tokenizer.decode, tokenizer.decode_words, tokenizer.pieces):
            with pytest.raises(ValueError, match=rf"ids must be from 0 to {size - 1}, got {wrong}"):
                method([4, wrong])


def _changed(**model: object) -> bytes:
    raw = json.loads(BPE._model.to_str())
    raw["model"].update(model)
    return json.dumps(raw).encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(None, "cannot be read .No such file or directory.; is this a complete", id="missing"),
        pytest.param(b"\xff", "is not UTF-8 text", id="bytes"),
        pytest.param(b"", r"is not a tokenizer of headlights \(.+\); copy", id="empty"),
        pytest.param(b"{}", r"is not a tokenizer of headlights \(.+\); copy", id="no model"),
        pytest.param(
            _changed(vocab={}, merges=[]), r"must begin with <pad>, <bos>, <eos>, got \[\]", id="no words"
        ),
        pytest.param(
            _changed(vocab={"<pad>": 0, "<bos>": 1, "<eos>": 2, "a": 3}, merges=[]),
            "hold all bytes",
            id="no bytes",
        ),
        pytest.param(
            _changed(type="Unigram", vocab=[["a", 0.0]], unk_id=0),
            "must be BPE or WordLevel, got Unigram",
            id="kind",
        ),
    ],
)
def test_broken_files_are_one_clear_line(content: bytes | None, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=reason) as caught:
        Tokenizer.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_whole_text_is_placed_as_broken_text_is(text: str) -> None:
    data = text.encode()
    assert _pieces._decode(data) == _pieces._decode_broken(data)
