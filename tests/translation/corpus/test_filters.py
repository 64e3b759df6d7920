"""Filters against plain loops over sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlights.translation.corpus import Pair
from headlights.translation.corpus.filters import Dropped, Seen, SizeFilter

texts = st.text("ab ", max_size=3)


@given(st.lists(st.lists(st.tuples(texts, texts), min_size=1, max_size=9), max_size=9))
def test_seen_pairs_are_those_of_a_set(chunks: list[list[tuple[str, str]]]) -> None:
    seen, known = Seen(), set[tuple[str, str]]()
    for chunk in chunks:
        expected = []
        for pair in chunk:
            expected.append(pair not in known)
            known.add(pair)
        assert seen.are_new([Pair(*pair) for pair in chunk]).tolist() == expected


def test_where_a_side_ends_matters() -> None:
    assert Seen().are_new([Pair("ab", "c"), Pair("a", "bc")]).tolist() == [True, True]


def test_seen_keeps_few_arrays() -> None:
    seen = Seen()
    for start in range(0, 1000, 10):
        assert seen.are_new([Pair(str(i), "") for i in range(start, start + 10)]).all()
    assert not seen.are_new([Pair(str(i), "") for i in range(1000)]).any()
    assert len(seen._runs) <= 7  # each is more than twice its successor, 10 the least: 10 * 2**7 > 1000


def test_reasons_by_hand() -> None:
    sizes = SizeFilter(min_length=2, max_length=6, max_ratio=2.0)
    source = np.array([2, 2, 7, 1, 6, 1], np.int32)
    target = np.array([4, 5, 6, 1, 3, 9], np.int32)
    # 5 > 2 * 2; 7 > 6; 1 < 2; 6 = 2 * 3 is allowed; (1, 9) is unequal, long and short: short is said
    assert sizes.reasons(source, target) == [None, "ratio", "long", "short", None, "short"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 5, 2.0), "min_length, max_length: expected 1 <= min_length <= max_length, got 0 and 5"),
        ((6, 5, 2.0), "min_length, max_length: expected 1 <= min_length <= max_length, got 6 and 5"),
        ((1, 5, 0.5), "max_ratio: expected 1 or more, got 0.5"),
        ((1, 5, float("nan")), "max_ratio: expected 1 or more, got nan"),
    ],
)
def test_impossible_sizes_are_refused(values: tuple[int, int, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SizeFilter(*values)


def test_dropped_keeps_a_few_examples_of_each_reason() -> None:
    dropped = Dropped()
    for line in range(1, 6):
        dropped.add("long", f"f:{line}")
    dropped.add("blank", "f:9")
    assert dropped.counts == {"long": 5, "blank": 1}
    assert dropped.examples == {"long": ["f:1", "f:2", "f:3"], "blank": ["f:9"]}
