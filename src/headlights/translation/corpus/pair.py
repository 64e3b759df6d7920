"""One sentence and its translation: what every reader yields and everything after it takes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence, its translation and, where known, which words translate which.

    Word numbers count from 0 and are those of `headlights.translation.words.words`.

    Attributes:
        source: The sentence to translate.
        target: Its translation.
        links: Sure links as (source word, target word); None where nobody has aligned the pair.
        possible: Links that are neither required nor wrong; evaluation skips them.
        origin: "file:line" for messages; empty for a pair that came from no file.
    """

    source: str
    target: str
    links: tuple[tuple[int, int], ...] | None = None
    possible: tuple[tuple[int, int], ...] = ()
    origin: str = ""
