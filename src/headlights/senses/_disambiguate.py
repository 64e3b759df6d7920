"""The sense of a word in its sentence, and what decided it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from headlights._errors import InputError
from headlights.senses._clusters import Cluster, Senses, cluster
from headlights.senses._embedding import builtin
from headlights.senses._encoders import ContextEncoder, Encoder, SelfAttention
from headlights.senses._vectors import cosine
from headlights.senses._words import is_mark, places, same_word, split_words


@dataclass(frozen=True, eq=False)
class Reading:
    """One word in one sentence, before and after it looked at the others.

    Attributes:
        word: The word, as the sentence writes it.
        words: The N words of the sentence.
        position: Where the word stands, counted from 0.
        static: Its vector for any sentence, float, shape (E,).
        contextual: Its vector in this one, shape (E,); another width if the model's layers have another.
        weights: How much it takes from each word, itself included, shape (N,), each in 0..1, with sum 1.
        before: Cosine of `static` to each sense; empty if no senses were given.
        after: Cosine of `contextual` to each sense.
        one_space: Whether `before` and `after` may be compared: both vectors share a space, as with
            `SelfAttention`.
    """

    word: str
    words: tuple[str, ...]
    position: int
    static: Tensor
    contextual: Tensor
    weights: Tensor
    before: Mapping[str, float]
    after: Mapping[str, float]
    one_space: bool

    @property
    def sense(self) -> str | None:
        """The sense that the word has here; None if no senses were given.

        It is the one whose cosine rose most, which does not depend on how frequent each sense is in the text
        that the static vector comes from; where before and after cannot be compared, it is the nearest.
        """
        rises = {name: after - self.before[name] * self.one_space for name, after in self.after.items()}
        return max(rises, key=rises.__getitem__, default=None)

    @property
    def nearest(self) -> str | None:
        """The sense with the largest cosine after, the first of equals; None if no senses were given."""
        return max(self.after, key=self.after.__getitem__, default=None)

    @property
    def nearest_static(self) -> str | None:
        """The sense that the static vector alone would take: the same one in every sentence."""
        return max(self.before, key=self.before.__getitem__, default=None)

    @property
    def decided_by(self) -> tuple[tuple[str, float], ...]:
        """The other words with their weights, largest first; a word said twice counts with its sum."""
        sums: dict[str, float] = {}
        for word, weight in zip(self.words, self.weights.tolist(), strict=True):
            if not is_mark(word) and not same_word(word, self.word):
                sums[word.casefold()] = sums.get(word.casefold(), 0.0) + weight
        return tuple(sorted(sums.items(), key=lambda item: -item[1]))

    def text(self, *, color: bool | None = None, width: int | None = None) -> str:
        """Draw the weights as text, as `headlights.view.terminal` does.

        Args:
            color: Whether to colour by escape sequences. Default: on a terminal.
            width: Columns that a line may take. Default: the terminal's.

        Returns:
            A few lines.
        """
        from headlights import view  # noqa: PLC0415 - drawing is a layer above

        weights = self.weights.unsqueeze(0)
        return view.terminal(weights, self.words, [self.word], color=color, width=width, numbers=True)

    def svg(self) -> str:
        """Draw the weights as a picture, as `headlights.view.svg` does.

        Returns:
            The text of an SVG file.
        """
        from headlights import view  # noqa: PLC0415 - drawing is a layer above

        return view.svg(self.weights.unsqueeze(0), self.words, [self.word], title=self.title)

    @property
    def title(self) -> str:
        """The word and its sense, for a heading."""
        return self.word if self.sense is None else f"{self.word}: {self.sense}"


def disambiguate(
    word: str,
    sentences: Sequence[str],
    encoder: Encoder | ContextEncoder | None = None,
    *,
    senses: Senses | None = None,
) -> list[Reading]:
    """Find out what an ambiguous word means in each sentence, and which words decide it.

    Source: source A, "Core Idea": one static vector becomes another in every sentence, nearer to the words of
    the sense that it has there.

    Args:
        word: The word, in any capitals.
        sentences: Each holds the word; the first one counts if it stands there twice.
        encoder: Makes vectors: a callable from words to static vectors, which `SelfAttention` then mixes with
            scale 1, or something that sees words in context itself, such as `SelfAttention` with another
            scale, `HuggingFace(folder)` and `minilm()`. Default: `builtin()`.
        senses: For each sense a list of words, phrases or sentences that show it; an item that holds the word
            itself counts as the word in it. Default: none; readings then have no cosines.

    Returns:
        One reading a sentence, in order.

    Raises:
        TypeError: `sentences` is one string, or `encoder` is not callable.
        ValueError: A sentence lacks the word, or the encoder knows neither it nor a word of some sense.

    Example:
        >>> senses = {"furniture": ["chair", "furniture"], "data": ["row", "digits"]}
        >>> sentences = ["The table has a lot of data", "There is a plate on the table"]
        >>> readings = disambiguate("table", sentences, senses=senses)
        >>> [(reading.sense, reading.decided_by[0][0]) for reading in readings]
        [('data', 'data'), ('furniture', 'plate')]
    """
    if isinstance(sentences, str):
        raise TypeError("sentences: expected a list of sentences, got one string; put it in a list")
    chosen = builtin() if encoder is None else encoder
    if not callable(chosen):
        raise TypeError(f"encoder: expected a callable from words to vectors, got {type(chosen).__name__}")
    seeing = chosen if isinstance(chosen, ContextEncoder) else SelfAttention(chosen)
    static = seeing([word])[0]
    if not static.any():
        raise InputError(f"word: the encoder does not know {word!r}; take another encoder or another word")
    clusters = {name: cluster(word, name, items, seeing) for name, items in (senses or {}).items()}
    before = {name: float(cosine(static, found.static)) for name, found in clusters.items()}
    return [_read(word, sentence, seeing, static, before, clusters) for sentence in sentences]


def _read(
    word: str,
    sentence: str,
    encoder: ContextEncoder,
    static: Tensor,
    before: Mapping[str, float],
    clusters: Mapping[str, Cluster],
) -> Reading:
    words = split_words(sentence)
    found = places(word, words)
    if not found:
        raise InputError(f"sentences: expected the word {word!r} in each, got {sentence!r}")
    position = found[0]
    vectors, weights = encoder.context(words)
    return Reading(
        word=words[position],
        words=words,
        position=position,
        static=static,
        contextual=vectors[position],
        weights=weights[position],
        before=before,
        after={name: float(cosine(vectors[position], each.contextual)) for name, each in clusters.items()},
        one_space=encoder.one_space,
    )
