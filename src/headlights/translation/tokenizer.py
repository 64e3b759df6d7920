"""Text to token ids and back, and which word each piece belongs to."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from headlights.translation._pieces import BYTES_OF, Prepared, cut, place_pieces, prepare, to_byte_letters
from headlights.translation.words import Word, join_words

_SPECIAL = ("<pad>", "<bos>", "<eos>")
_UNKNOWN = "<unk>"
_BYTES = 256
_CACHE_LIMIT = 2**16


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as token ids, without begin or end mark.

    Attributes:
        ids: The token ids.
        word_of_piece: For each id the index of its word in `words`; None for white space and special tokens.
        words: The words of the text with their places in it.
    """

    ids: tuple[int, ...]
    word_of_piece: tuple[int | None, ...]
    words: tuple[Word, ...]


class Tokenizer:
    """A vocabulary of byte-pair pieces or of whole words, learned from the user's own text.

    Made by `train` or `load`. With kind "bpe" any text is encoded, without an unknown token, and decoded to
    exactly what it was; pieces never cross the words of `headlights.translation.words`. With kind "word" each
    word is one token and words that were not learned are `unk`. Special tokens exist as ids only: a text like
    "<pad>" or "</s>" is ordinary text.

    Source of byte-pair encoding: Sennrich et al. 2016, arXiv:1508.07909, section 3.2; here over bytes.

    Args:
        model: A trained Hugging Face tokenizer in the form that `save` writes.

    Attributes:
        kind: "bpe" or "word".
        lowercase: Whether text is lower-cased before anything else.
        pad_id: Fills up the rows of a batch.
        bos_id: Begins a sentence.
        eos_id: Ends a sentence.
        unk_id: Stands for unknown words; None with kind "bpe", which knows everything.
        vocab_size: Number of ids, special tokens included.

    Raises:
        ValueError: `model` is not of that form.
    """

    kind: Literal["bpe", "word"]

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        if not isinstance(model.model, models.BPE | models.WordLevel):
            raise ValueError(f"the model must be BPE or WordLevel, got {type(model.model).__name__}")
        self._model = model
        self.kind = "bpe" if isinstance(model.model, models.BPE) else "word"
        self.lowercase = model.normalizer is not None
        self._id_of: dict[str, int] = model.get_vocab(with_added_tokens=False)
        self._tokens = sorted(self._id_of, key=self._id_of.__getitem__)
        self.vocab_size = len(self._tokens)
        special = _SPECIAL if self.kind == "bpe" else (*_SPECIAL, _UNKNOWN)
        ids = [self._id_of.get(token) for token in special]
        if ids != list(range(len(special))) or max(self._id_of.values()) != self.vocab_size - 1:
            raise ValueError(f"the vocabulary must begin with {', '.join(special)}, got {self._tokens[:4]}")
        if self.kind == "bpe" and not (
            BYTES_OF.keys() <= self._id_of.keys() and set("".join(self._tokens[3:])) <= BYTES_OF.keys()
        ):
            raise ValueError("the vocabulary must hold all bytes and pieces made of bytes")
        self.pad_id, self.bos_id, self.eos_id = range(3)
        self.unk_id = None if self.kind == "bpe" else 3
        self._cache: dict[str, tuple[int, ...]] = {}

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Literal["bpe", "word"] = "bpe",
        vocab_size: int,
        lowercase: bool = False,
    ) -> "Tokenizer":
        """Learn a vocabulary; the same texts always give the same one.

        Args:
            texts: The text to learn from, read once.
            kind: "bpe" for pieces of words, "word" for whole words.
            vocab_size: Most ids there may be, special tokens included. Little text gives fewer.
            lowercase: Whether to lower-case all text, here and later.

        Returns:
            The tokenizer.

        Raises:
            ValueError: `kind` is neither, `vocab_size` has no room for the bytes or special tokens that are
                always there, or a text holds a lone surrogate.
        """
        if kind not in ("bpe", "word"):
            raise ValueError(f"kind must be 'bpe' or 'word', got {kind!r}")
        least = _BYTES + len(_SPECIAL) if kind == "bpe" else len(_SPECIAL) + 2
        if vocab_size < least:
            raise ValueError(
                f"vocab_size must be at least {least} for kind={kind!r}, got {vocab_size}; "
                "a few thousand is usual"
            )
        prepared = (prepare(text, lowercase) for text in texts)
        model = _train_bpe(prepared, vocab_size) if kind == "bpe" else _train_words(prepared, vocab_size)
        if lowercase:
            model.normalizer = normalizers.Lowercase()
        return cls(model)

    def encode(self, text: str) -> Encoded:
        """Turn a text into ids.

        Args:
            text: Any text. It gets no begin or end mark.

        Returns:
            The ids, the word of each, and the words as they stand in `text`.

        Raises:
            ValueError: The text holds a lone surrogate, which is not valid Unicode.
        """
        prepared, found, places = prepare(text, self.lowercase)
        if self.kind == "word":
            ids = tuple(self._id_of.get(prepared[start:end], 3) for start, end in places)
            return Encoded(ids, tuple(range(len(ids))), tuple(found))
        pieces: list[int] = []
        owners: list[int | None] = []
        for segment, owner in cut(prepared, places):
            segment_ids = self._cache.get(segment)
            if segment_ids is None:
                segment_ids = self._encode_segment(segment)
            pieces += segment_ids
            owners += [owner] * len(segment_ids)
        return Encoded(tuple(pieces), tuple(owners), tuple(found))

    def encode_batch(self, texts: Iterable[str]) -> list[Encoded]:
        """Turn many texts into ids.

        Args:
            texts: Any texts.

        Returns:
            What `encode` gives for each, in order.
        """
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Turn ids into text.

        Args:
            ids: Token ids; special tokens other than `unk` are left out.

        Returns:
            With kind "bpe" exactly what was encoded (lower-cased, if so); bytes that form no character, which
            only a model can produce, become U+FFFD. With kind "word" the words with usual spacing.

        Raises:
            ValueError: An id is not in the vocabulary.
        """
        return self._read(ids)[0]

    def decode_words(self, ids: Sequence[int]) -> Encoded:
        """Which word of the decoded text each id belongs to, for ids that a model has chosen.

        Args:
            ids: Token ids; special tokens belong to no word.

        Returns:
            `ids` themselves, the word of each (the one that covers most of its bytes) and the words, with
            their places in `decode(ids)`.

        Raises:
            ValueError: An id is not in the vocabulary.
        """
        return self.read(ids)[1]

    def read(self, ids: Sequence[int]) -> tuple[str, Encoded]:
        """What `decode` and `decode_words` give, in the time of one.

        Args:
            ids: Token ids.

        Returns:
            The text, and its words with the ids.

        Raises:
            ValueError: An id is not in the vocabulary.
        """
        text, owners, found = self._read(ids)
        return text, Encoded(tuple(ids), owners, found)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        r"""The ids as strings to show to people.

        Args:
            ids: Token ids.

        Returns:
            A string for each id, never empty. Spaces are shown as "▁", bytes that are only part of a
            character as "\xe2".

        Raises:
            ValueError: An id is not in the vocabulary.
        """
        tokens = self._lookup(ids)
        if self.kind == "word":
            return tokens
        return [
            token
            if number < len(_SPECIAL)
            else _as_bytes(token).decode("utf-8", "backslashreplace").replace(" ", "▁")
            for number, token in zip(ids, tokens, strict=True)
        ]

    def parts(self) -> list[tuple[int, int]]:
        """What each token was merged from.

        Returns:
            For each id the two ids that byte-pair encoding merged into it, (-1, -1) where there are none (a
            byte, a special token, a word of kind "word").
        """
        parts = [(-1, -1)] * self.vocab_size
        for left, right in json.loads(self._model.to_str())["model"].get("merges", ()):
            parts[self._id_of[left + right]] = self._id_of[left], self._id_of[right]
        return parts

    def save(self, path: str | Path) -> None:
        """Write everything to one file, in the JSON format of Hugging Face `tokenizers`.

        Args:
            path: The file; it is written beside and renamed, so that a crash leaves no half of it.
        """
        beside = Path(f"{path}.part")
        beside.write_text(self._model.to_str(pretty=True) + "\n", encoding="utf-8")
        os.replace(beside, path)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read what `save` wrote.

        Args:
            path: The file.

        Returns:
            A tokenizer equal to the one saved.

        Raises:
            ValueError: The file is missing, unreadable, or not one that `save` wrote.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise ValueError(
                f"{path}: cannot be read ({error.strerror}); is this a complete model folder?"
            ) from None
        except UnicodeDecodeError:
            raise ValueError(f"{path}: is not UTF-8 text; copy the model folder again") from None
        try:
            return cls(_parse(text))
        except ValueError as error:
            reason = str(error)
        raise ValueError(f"{path}: is not a tokenizer of headlights ({reason}); copy the model folder again")

    def same_as(self, other: "Tokenizer") -> bool:
        """Tell whether two tokenizers do the same with any text.

        Args:
            other: The other one.

        Returns:
            Whether they do.
        """
        return self._model.to_str() == other._model.to_str()

    def _encode_segment(self, segment: str) -> tuple[int, ...]:
        # The bare model: the tokenizer around it would turn "<pad>" in a text into the special token.
        ids = tuple(token.id for token in self._model.model.tokenize(to_byte_letters(segment)))
        if len(self._cache) >= _CACHE_LIMIT:
            self._cache.clear()
        self._cache[segment] = ids
        return ids

    def _lookup(self, ids: Sequence[int]) -> list[str]:
        for number in ids:
            if not 0 <= number < self.vocab_size:
                raise ValueError(f"ids must be from 0 to {self.vocab_size - 1}, got {number}")
        return [self._tokens[number] for number in ids]

    def _read(self, ids: Sequence[int]) -> tuple[str, tuple[int | None, ...], tuple[Word, ...]]:
        tokens = self._lookup(ids)
        if self.kind == "bpe":
            pieces = [b"" if n < len(_SPECIAL) else _as_bytes(t) for n, t in zip(ids, tokens, strict=True)]
            return place_pieces(pieces)
        numbered = [t for n, t in zip(ids, tokens, strict=True) if n >= len(_SPECIAL)]
        text = join_words(numbered)
        found: list[Word] = []
        owners: list[int | None] = []
        for number, token in zip(ids, tokens, strict=True):
            if number < len(_SPECIAL):
                owners.append(None)
                continue
            start = text.index(token, found[-1].end if found else 0)
            owners.append(len(found))
            found.append(Word(token, start, start + len(token)))
        return text, tuple(owners), tuple(found)


def _as_bytes(token: str) -> bytes:
    return bytes(BYTES_OF[letter] for letter in token)


def _train_bpe(prepared: Iterable[Prepared], vocab_size: int) -> tokenizers.Tokenizer:
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(BYTES_OF),
        show_progress=False,
    )
    segments = ([segment for segment, _ in cut(text, places)] for text, _, places in prepared)
    model.train_from_iterator(segments, trainer)
    return model


def _train_words(prepared: Iterable[Prepared], vocab_size: int) -> tokenizers.Tokenizer:
    counts = Counter(text[start:end] for text, _, places in prepared for start, end in places)
    special = [*_SPECIAL, _UNKNOWN]
    ranked = sorted(counts, key=lambda text: (-counts[text], text))[: vocab_size - len(special)]
    vocabulary = {token: number for number, token in enumerate([*special, *ranked])}
    return tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=_UNKNOWN))


def _parse(text: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the binding raises a bare Exception for whatever it cannot read
        raise ValueError(str(error).partition("\n")[0]) from None
