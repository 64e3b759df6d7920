"""Joining two alignments: cases worked out by hand, and what must hold for all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlights.translation.symmetrisation import METHODS, Method, symmetrise

links = st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=12)

# Rows are source words, columns target words: B found both ways, f forward only, b backward only.
#      0 1 2 3 4
#   0  B . . . .
#   1  f B . . .
#   2  . . b . .
#   3  . . . . f
#   4  . b . . .
FORWARD = {(0, 0), (1, 1), (1, 0), (3, 4)}
BACKWARD = {(0, 0), (1, 1), (2, 2), (4, 1)}


@pytest.mark.parametrize(
    ("method", "added"),
    [
        ("intersection", set()),
        # (1, 0) is beside (0, 0), but both its words have links; (2, 2) touches (1, 1) by a corner.
        ("grow", set()),
        ("grow-diag", {(2, 2)}),
        # (3, 4) has no link on either side; (4, 1) has none on the source side only.
        ("grow-diag-final", {(2, 2), (3, 4), (4, 1)}),
        ("grow-diag-final-and", {(2, 2), (3, 4)}),
        ("union", {(1, 0), (2, 2), (3, 4), (4, 1)}),
    ],
)
def test_by_hand(method: Method, added: set[tuple[int, int]]) -> None:
    assert symmetrise(FORWARD, BACKWARD, method) == tuple(sorted({(0, 0), (1, 1)} | added))


def test_growth_goes_on_from_what_has_grown() -> None:
    # (0, 0) is certain; (0, 1) is beside it, (0, 2) beside that one.
    assert symmetrise([(0, 0), (0, 1), (0, 2)], [(0, 0)], "grow") == ((0, 0), (0, 1), (0, 2))


@given(links, links)
def test_each_method_lies_between_intersection_and_union(
    forward: set[tuple[int, int]], backward: set[tuple[int, int]]
) -> None:
    found = {method: set(symmetrise(forward, backward, method)) for method in METHODS}
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    for method in METHODS:
        assert found["intersection"] <= found[method] <= found["union"]
    assert found["grow-diag"] <= found["grow-diag-final-and"] <= found["union"]
    linked = {source for source, _ in found["grow-diag-final"]}
    assert linked == {source for source, _ in found["union"]}  # no word is left without, if any link has it


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValueError, match=r"method: expected one of intersection, union, grow, .*, got 'and'"):
        symmetrise([], [], "and")  # type: ignore[arg-type]
