"""Pairs by the thousand: distinct, repeatable, and split so that the test holds out combinations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from zlib import crc32

from headlights.translation.corpus.grammar.lexicon import lexicon
from headlights.translation.corpus.grammar.phrases import FINAL_MARKS
from headlights.translation.corpus.grammar.sentences import Sentence, sentence
from headlights.translation.corpus.pair import Pair

# The share of the combinations of a kind that never occur in training.
_HELD_OUT = {"adjective": 0.06, "object": 0.05}
# The test has about as many sentences of each length: up to 4 words, up to 9, and so on to 24.
_BUCKET = 5
_BUCKETS = 5


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence to show, with its ambiguous word.

    Attributes:
        pair: The sentence and its translation.
        ambiguous: Position of the ambiguous word among the source words.
        deciding: Position of the source word that decides its sense.
        sense: The Italian word that is right here.
    """

    pair: Pair
    ambiguous: int
    deciding: int
    sense: str


# The sentences of the mission's introduction to attention; no split contains them.
EXAMPLES = (
    Example(
        Pair(
            "The table has a lot of data",
            "La tabella ha molti dati",
            ((0, 0), (1, 1), (2, 2), (4, 3), (6, 4)),
            ((3, 3), (5, 3)),
        ),
        ambiguous=1,
        deciding=6,
        sense="tabella",
    ),
    Example(
        Pair(
            "There is a plate on the table",
            "C'è un piatto sul tavolo",
            ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (6, 5)),
            ((5, 4),),
        ),
        ambiguous=6,
        deciding=3,
        sense="tavolo",
    ),
    Example(
        Pair(
            "The cat sits on the mat",
            "Il gatto siede sul tappeto",
            ((0, 0), (1, 1), (2, 2), (3, 3), (5, 4)),
            ((4, 3),),
        ),
        ambiguous=5,
        deciding=1,
        sense="tappeto",
    ),
    Example(
        Pair(
            "The athlete exercises on the mat",
            "L'atleta si allena sul materassino",
            ((0, 0), (1, 1), (2, 2), (2, 3), (3, 4), (5, 5)),
            ((4, 4),),
        ),
        ambiguous=5,
        deciding=1,
        sense="materassino",
    ),
)


@dataclass(frozen=True, slots=True)
class Splits:
    """Pairs to train on, to choose the best step by, and to measure with.

    Attributes:
        train: Pairs without any held-out combination.
        valid: Other pairs of the same kind.
        test: Pairs that each hold a combination of two words that training never shows together.
    """

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]


def generate(count: int, *, seed: int) -> list[Pair]:
    """Return distinct sentence pairs with gold links; asking for more of them does not change the first.

    Args:
        count: How many pairs, 0 or more.
        seed: Decides which.

    Returns:
        The pairs; no two have the same source, final mark and capital aside.

    Raises:
        ValueError: `count` is below 0.
    """
    if count < 0:
        raise ValueError(f"count: expected 0 or more, got {count}")
    stream = sentences(seed)
    return [next(stream).pair for _ in range(count)]


def splits(seed: int = 0, train: int = 12000, valid: int = 500, test: int = 500) -> Splits:
    """Return disjoint splits; each test pair combines words that are all trained on, but never together.

    What is held out is an adjective with a noun, a verb with its object, or a word that decides the sense of
    an ambiguous one. Which combinations these are does not depend on the seed.

    Args:
        seed: Decides which pairs.
        train: How many training pairs, 0 or more.
        valid: How many validation pairs, 0 or more.
        test: How many test pairs, 0 or more; they use no word that training lacks.

    Returns:
        The three splits, of exactly these sizes.

    Raises:
        ValueError: A size is below 0, or `train` is too small to teach the words of `valid` and `test`.
    """
    for name, size in (("train", train), ("valid", valid), ("test", test)):
        if size < 0:
            raise ValueError(f"{name}: expected 0 or more pairs, got {size}")
    stream = sentences(seed)
    usual: list[Pair] = []
    held: list[Pair] = []
    while len(usual) < train:
        each = next(stream)
        (held if is_held_out(each) else usual).append(each.pair)
    known = _words(usual)
    tested, validated = _Collection(test, known), _Collection(valid, known)
    for pair in held:
        tested.offer(pair)
    for _ in range(100 * (valid + test + 1)):
        if tested.is_full() and validated.is_full():
            return Splits(tuple(usual), tuple(validated.pairs), tuple(tested.pairs))
        each = next(stream)
        (tested if is_held_out(each) else validated).offer(each.pair)
    raise ValueError(f"train: {train} pairs teach too few words for the other splits; expected 1000 or more")


class _Collection:
    """Collects pairs of known words, about as many of each length."""

    def __init__(self, size: int, known: set[str]) -> None:
        self.pairs: list[Pair] = []
        self._size = size
        self._known = known
        self._lengths: Counter[int] = Counter()

    def is_full(self) -> bool:
        return len(self.pairs) == self._size

    def offer(self, pair: Pair) -> None:
        """Keep the pair if there is room for one of its length."""
        bucket = len(_split(pair.source)) // _BUCKET
        fits = self._lengths[bucket] * _BUCKETS < self._size and _words([pair]) <= self._known
        if fits and not self.is_full():
            self._lengths[bucket] += 1
            self.pairs.append(pair)


def senses() -> dict[str, tuple[str, str]]:
    """Return for each ambiguous English word form its two Italian ones: table: tavolo, tabella."""
    forms: dict[str, tuple[str, str]] = {}
    for first, second in lexicon().senses.values():
        for english, one, other in zip(first.english, first.italian, second.italian, strict=True):
            if english:
                forms[english] = (one, other)
    return forms


def sentences(seed: int) -> Iterator[Sentence]:
    """Yield distinct sentences without end, none of them an example."""
    rng = Random(seed)
    seen = {_normal(example.pair.source) for example in EXAMPLES}
    told: Counter[str] = Counter()
    while True:
        each = sentence(rng, told)
        normal = _normal(each.pair.source)
        if normal not in seen:
            seen.add(normal)
            # What is held out teaches nothing, so its words still count as rare.
            if not is_held_out(each):
                told.update(each.chosen)
            yield each


def is_held_out(each: Sentence) -> bool:
    """Whether the sentence combines what training never does."""
    return any(_is_held_out(combination) for combination in each.combinations)


def _is_held_out(combination: tuple[str, str, str]) -> bool:
    if combination[0] == "sense":
        return combination[1:] in lexicon().held_out
    # Held out with one sense only, an adjective would itself tell the senses apart.
    ambiguous = "/" in combination[1]
    return not ambiguous and _lot(combination) < _HELD_OUT[combination[0]]


def _lot(combination: tuple[str, str, str]) -> float:
    """Return a number in 0..1 that is always the same for a combination."""
    return crc32(" ".join(combination).encode()) / 2**32


def _normal(text: str) -> str:
    return text.lower().rstrip("".join(FINAL_MARKS))


def _words(pairs: list[Pair]) -> set[str]:
    """Return the word forms of both languages, each marked with its own."""
    words: set[str] = set()
    for pair in pairs:
        words.update(f"source {word}" for word in _split(pair.source))
        words.update(f"target {word}" for word in _split(pair.target))
    return words


def _split(text: str) -> list[str]:
    for mark in (*FINAL_MARKS, ","):
        text = text.replace(mark, " ")
    return text.lower().replace("'", "' ").split()
