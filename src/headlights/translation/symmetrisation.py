"""One alignment from two: that of a model which writes the target and that of one which writes the source."""

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

from headlights.translation.alignment import Links

Method = Literal["intersection", "union", "grow", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
METHODS: tuple[Method, ...] = get_args(Method)

Link = tuple[int, int]

_BESIDE = ((-1, 0), (0, -1), (1, 0), (0, 1))
_DIAGONAL = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(
    forward: Iterable[Link], backward: Iterable[Link], method: Method = "grow-diag-final-and"
) -> Links:
    """Combine the links of two directions.

    Source: Och and Ney 2003, doi:10.1162/089120103321337421, 6 (intersection, union, growing); Koehn et al.
    2005, "Edinburgh system description", 2 (diag, final, and).

    Args:
        forward: Links found by a model from source to target, as (source word, target word).
        backward: Links found by a model from target to source, as (source word, target word) too.
        method: "intersection" (certain, few), "union" (many), or growth from the one towards the other:
            "grow" adds links beside those there for words without a link, "-diag" also diagonally, "-final"
            then any link with a word that still has none, "-final-and" any link of two such words.

    Returns:
        The links, sorted.

    Raises:
        ValueError: `method` is unknown.

    Example:
        >>> symmetrise([(0, 0), (1, 1)], [(0, 0), (1, 1), (1, 2)])
        ((0, 0), (1, 1), (1, 2))
    """
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    ahead, back = set(forward), set(backward)
    if method == "union":
        return tuple(sorted(ahead | back))
    found = _Growing(ahead & back)
    if method != "intersection":
        found.grow(ahead | back, _BESIDE if method == "grow" else _BESIDE + _DIAGONAL)
    if "final" in method:
        for direction in (ahead, back):
            found.finish(direction, both=method.endswith("and"))
    return tuple(sorted(found.links))


class _Growing:
    """Links, and which words have one."""

    def __init__(self, links: set[Link]) -> None:
        self.links = set(links)
        self._sources = {source for source, _ in links}
        self._targets = {target for _, target in links}

    def grow(self, allowed: set[Link], steps: Iterable[Link]) -> None:
        """Add allowed links next to those there, for words without a link, until nothing changes."""
        before = -1
        while before != len(self.links):
            before = len(self.links)
            for link in sorted(self.links):
                for neighbour in _around(link, steps):
                    if neighbour in allowed and self._lacks(neighbour, both=False):
                        self._add(neighbour)

    def finish(self, candidates: set[Link], *, both: bool) -> None:
        """Add links that give a link to a word without one, or to two such words."""
        for link in sorted(candidates):
            if self._lacks(link, both=both):
                self._add(link)

    def _lacks(self, link: Link, *, both: bool) -> bool:
        lacking = (link[0] not in self._sources, link[1] not in self._targets)
        return all(lacking) if both else any(lacking)

    def _add(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])


def _around(link: Link, steps: Iterable[Link]) -> Iterator[Link]:
    return ((link[0] + down, link[1] + right) for down, right in steps)
