"""`KeyValueCache`: a value that shares storage along one line of continuation and nowhere else."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headlights import KeyValueCache


def rows(n: int, *leading: int) -> tuple[Tensor, Tensor]:
    return torch.randn(*leading, n, 3), torch.randn(*leading, n, 5)


def holds(cache: KeyValueCache, key: Tensor, value: Tensor) -> bool:
    assert cache.key is not None
    assert cache.value is not None
    return cache.length == key.shape[-2] and torch.equal(cache.key, key) and torch.equal(cache.value, value)


def test_an_empty_cache_holds_nothing() -> None:
    cache = KeyValueCache()
    assert (cache.length, cache.key, cache.value) == (0, None, None)
    assert repr(cache) == "KeyValueCache(empty)"
    assert cache.select(torch.tensor([0, 1])) is cache


@pytest.mark.parametrize("grad", [True, False])
def test_appending_twice_to_one_parent_leaves_both_intact(grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        base, one, other = rows(3, 2), rows(2, 2), rows(2, 2)
        parent = KeyValueCache().append(*rows(1, 2)[:0], *base).append(*(x[:, :0] for x in base))
        parent = parent.append(*(x[:, :1] for x in base))  # so that the storage has room left
        stored = (parent.key, parent.value)
        assert stored[0] is not None
        assert stored[1] is not None
        before = (stored[0].clone(), stored[1].clone())
        left, right = parent.append(*one), parent.append(*other)
    for child, new in ((left, one), (right, other)):
        assert holds(child, *(torch.cat(parts, -2) for parts in zip(before, new, strict=True)))
    assert holds(parent, *before)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from(["append", "select"])), max_size=12
    )
)
def test_every_cache_of_a_family_keeps_its_rows(steps: list[tuple[int, int, str]]) -> None:
    """Whatever is appended to or selected from whichever earlier cache, none of them changes."""
    start = rows(2, 2)
    family = [(KeyValueCache().append(*start), *start)]
    with torch.no_grad():
        for place, size, what in steps:
            cache, key, value = family[place % len(family)]
            if what == "append":
                new = rows(size, 2)
                family.append(
                    (cache.append(*new), torch.cat((key, new[0]), -2), torch.cat((value, new[1]), -2))
                )
            else:
                indices = torch.tensor([size % 2, 1])
                family.append((cache.select(indices), key[indices], value[indices]))
            assert all(holds(*member) for member in family)


def test_one_line_of_continuation_moves_a_logarithmic_number_of_times() -> None:
    cache, places = KeyValueCache(), []
    with torch.no_grad():
        for _ in range(100):
            cache = cache.append(*rows(1, 2, 7))
            assert cache.key is not None
            places.append(cache.key.data_ptr())
    moves = sum(one != other for one, other in pairwise(places))
    assert moves == 7  # to 2, 4, 8, ..., 128 rows


def test_gradients_flow_through_a_cache_and_nothing_is_written_in_place() -> None:
    key, value = (x.requires_grad_() for x in rows(3, 2))
    more = [x.requires_grad_() for x in rows(2, 2)]
    cache = KeyValueCache().append(key, value).append(*more)
    with torch.no_grad():
        longer = cache.append(*rows(1, 2))
    assert cache.key is not None
    assert longer.key is not None
    assert longer.key.data_ptr() != cache.key.data_ptr()
    (cache.key.square().sum() + cache.select(torch.tensor([1, 1])).key.sum()).backward()  # type: ignore[union-attr]
    assert torch.equal(key.grad[0], 2 * key[0])  # type: ignore[index]
    assert torch.equal(key.grad[1], 2 * key[1] + 2)  # type: ignore[index]
    assert torch.equal(more[0].grad[0], 2 * more[0][0])  # type: ignore[index]


def test_what_was_appended_may_change_afterwards() -> None:
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            key, value = rows(3, 2)
            cache = KeyValueCache().append(key, value)
            before = key.clone(), value.clone()
            key.zero_(), value.zero_()
            assert holds(cache, *before)


def test_a_cache_made_in_inference_mode_goes_on_outside() -> None:
    with torch.inference_mode():
        first = rows(3, 2)
        cache = KeyValueCache().append(*first).append(*(x[:, :1] for x in first))
    with torch.no_grad():
        new = rows(1, 2)
        longer = cache.append(*new)
    assert longer.length == 5
    assert longer.key is not None
    assert torch.equal(longer.key[:, 4:], new[0])


def test_select_reorders_repeats_and_drops() -> None:
    key, value = rows(3, 4, 2)
    cache = KeyValueCache().append(key, value)
    beams = torch.tensor([3, 0, 3])
    assert holds(cache.select(beams), key[beams], value[beams])
    assert repr(cache.select(beams)) == "KeyValueCache(length=3, key=(3, 2))"


def test_select_takes_some_rows_of_each() -> None:
    key, value = rows(5, 4, 2)
    cache = KeyValueCache().append(key, value)
    beams, kept = torch.tensor([3, 0, 3]), torch.tensor([[4, 1, 2, 0], [0, 1, 2, 3], [2, 2, 2, 2]])
    fewer = cache.select(beams, kept)
    by_hand = [
        torch.stack([stored[beam][:, places] for beam, places in zip(beams, kept, strict=True)])
        for stored in (key, value)
    ]
    assert holds(fewer, by_hand[0], by_hand[1])
    new = rows(2, 3, 2)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            longer = fewer.append(*new)
        assert holds(longer, torch.cat([by_hand[0], new[0]], -2), torch.cat([by_hand[1], new[1]], -2))
    assert holds(cache, key, value)
    assert cache.select(beams, kept[:, :0]).length == 0
    with pytest.raises(ValueError, match=r"select: expected rows of shape \(3, n\), .*, got \(2, 4\)"):
        cache.select(beams, kept[:2])
    for beyond in (5, -1):
        with pytest.raises(
            ValueError, match=rf"select: expected rows in 0\.\.4, got {min(beyond, 0)}\.\.{max(beyond, 4)}"
        ):
            cache.select(beams, torch.cat([kept, torch.full((3, 1), beyond)], 1))
    assert holds(cache.select(beams[:0], kept[:0]), key[:0, :, :4], value[:0, :, :4])


def test_selected_beams_are_continued_without_another_copy() -> None:
    with torch.no_grad():
        cache = KeyValueCache().append(*rows(3, 2)).append(*rows(1, 2)).select(torch.tensor([1, 0]))
        longer = cache.append(*rows(1, 2))
        assert cache.key is not None
        assert longer.key is not None
        assert longer.key.data_ptr() == cache.key.data_ptr()


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        (
            torch.zeros(3),
            torch.zeros(5),
            r"append: expected key \(..., n, D\) and value .*, got \(3,\) and \(5,\)",
        ),
        (torch.zeros(2, 1, 3), torch.zeros(2, 2, 5), r"got \(2, 1, 3\) and \(2, 2, 5\)"),
        (
            torch.zeros(1, 1, 3),
            torch.zeros(1, 1, 5),
            r"append: key of shape \(1, 1, 3\) does not continue .* \(2, 'n', 3\)",
        ),
        (torch.zeros(2, 1, 3), torch.zeros(2, 1, 4), r"append: value of shape \(2, 1, 4\) does not continue"),
        (
            torch.zeros(2, 1, 3).double(),
            torch.zeros(2, 1, 5),
            "append: key is torch.float64 on cpu, the stored rows are",
        ),
    ],
)
def test_rows_that_do_not_continue_are_refused(key: Tensor, value: Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        KeyValueCache().append(*rows(3, 2)).append(key, value)


def test_select_needs_a_leading_dimension() -> None:
    with pytest.raises(
        ValueError, match=r"select: the stored keys have shape \(3, 3\) and no leading dimension"
    ):
        KeyValueCache().append(*rows(3)).select(torch.tensor([0]))
