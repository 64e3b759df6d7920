"""The mask algebra: alignment, offsets, combination, blocks and refusals."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from headlights import attend, masks, observations
from headlights.attention import Mask
from headlights.attention._mask_rules import Grid

CPU = torch.device("cpu")


def visible_of(mask: Mask, leading: tuple[int, ...], N: int, M: int) -> Tensor:
    visible, bias = mask.evaluate(Grid(leading, N, M, CPU), 0, N)
    assert bias is None
    shape = (*leading, N, M)
    return torch.ones(shape, dtype=torch.bool) if visible is None else visible.expand(shape)


def weights_of(mask: Mask, leading: tuple[int, ...], N: int, M: int) -> Tensor:
    query, key = torch.zeros(*leading, N, 2), torch.zeros(*leading, M, 2)
    _, weights = attend(query, key, key, mask=mask, observe=observations.Weights())
    assert isinstance(weights, Tensor)
    return weights


def test_case03_causal_puts_the_last_query_on_the_last_key() -> None:
    # 2 new queries against 6 keys stand at positions 4 and 5.
    assert visible_of(masks.causal(), (), 2, 6).int().tolist() == [[1, 1, 1, 1, 1, 0], [1] * 6]
    # With more queries than keys the first ones stand before the first key and see nothing.
    assert visible_of(masks.causal(), (), 3, 2).int().tolist() == [[0, 0], [1, 0], [1, 1]]


def test_causal_from_a_given_start() -> None:
    assert visible_of(masks.causal(query_start=0), (), 2, 4).int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0]]
    assert visible_of(masks.causal(query_start=1), (), 2, 4).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0]]


def test_case05_stored_keys_reproduce_the_full_pass() -> None:
    query, key, value = torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 5), torch.randn(2, 3, 6, 4)
    full = attend(query, key, value, mask=masks.causal(), path="reference")
    for new in (1, 2, 3, 6):
        for path in ("reference", "fused"):
            part = attend(query[..., -new:, :], key, value, mask=masks.causal(), path=path)
            assert torch.allclose(part, full[..., -new:, :], atol=1e-6)


def test_case04_window_includes_both_ends() -> None:
    assert visible_of(masks.window(1, 2), (), 5, 5).int().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [0, 1, 1, 1, 1],
        [0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1],
    ]
    assert visible_of(masks.window(1, 0), (), 2, 4).int().tolist() == [[0, 1, 1, 0], [0, 0, 1, 1]]
    assert visible_of(masks.window(0, 1, query_start=0), (), 2, 4).int().tolist() == [
        [1, 1, 0, 0],
        [0, 1, 1, 0],
    ]


def test_lengths_align_from_the_left() -> None:
    visible = visible_of(masks.lengths([3, 0]), (2, 2), 1, 4)
    assert visible[:, :, 0].int().tolist() == [[[1, 1, 1, 0]] * 2, [[0, 0, 0, 0]] * 2]
    by_head = visible_of(masks.lengths(torch.tensor([[1, 2], [3, 4]])), (2, 2), 1, 4)
    assert by_head.sum(-1).squeeze(-1).tolist() == [[1, 2], [3, 4]]
    assert visible_of(masks.lengths(2), (), 1, 3).tolist() == [[True, True, False]]
    assert visible_of(masks.lengths([]), (0,), 1, 3).shape == (0, 1, 3)
    assert visible_of(masks.lengths([7]), (1,), 1, 3).all()


def test_segments_see_their_own_kind() -> None:
    ids = torch.tensor([[0, 0, 1], [5, 6, 6]])
    visible = visible_of(masks.segments(ids, ids), (2, 3), 3, 3)
    assert visible[0, 1].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    assert visible[1, 2].int().tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 1]]


def test_case07_tensors_align_from_the_right_unless_per_example() -> None:
    visible = torch.rand(2, 3, 5) > 0.5
    assert torch.equal(visible_of(masks.keep(visible), (7, 2), 3, 5)[4], visible)
    by_example = visible_of(masks.keep(visible, per_example=True), (2, 7), 3, 5)
    assert torch.equal(by_example[:, 4], visible)
    padding = torch.rand(2, 5) > 0.5
    hidden = visible_of(masks.hide(padding, per_example=True), (2, 7), 3, 5)
    assert torch.equal(hidden[:, 6, 2], ~padding)


def test_bias_per_example() -> None:
    bias = torch.randn(2, 5)
    block = masks.bias(bias, per_example=True).evaluate(Grid((2, 7), 3, 5, CPU), 0, 3)
    assert block.visible is None
    assert block.bias is not None
    assert torch.equal(block.bias.expand(2, 7, 3, 5)[1, 4, 2], bias[1])


@st.composite
def boolean_masks(draw: st.DrawFn, depth: int = 3) -> tuple[Mask, Callable[[int, int, int], bool], bool]:
    """A mask and the same rule as a plain function of (example, query, key), for B = 2, N = 3, M = 5."""
    kind = draw(st.sampled_from(["keep", "hide", "lengths", "causal", "window", "segments"]))
    if depth and draw(st.booleans()):
        left, left_rule, _ = draw(boolean_masks(depth=depth - 1))
        kind = draw(st.sampled_from("&|~"))
        if kind == "~":
            return ~left, lambda b, i, j: not left_rule(b, i, j), True
        right, right_rule, _ = draw(boolean_masks(depth=depth - 1))
        if kind == "&":
            return left & right, lambda b, i, j: left_rule(b, i, j) and right_rule(b, i, j), True
        return left | right, lambda b, i, j: left_rule(b, i, j) or right_rule(b, i, j), True
    if kind in ("keep", "hide"):
        bits = draw(st.lists(st.booleans(), min_size=30, max_size=30))
        tensor = torch.tensor(bits).reshape(2, 3, 5)
        maker = masks.keep if kind == "keep" else masks.hide
        return maker(tensor), lambda b, i, j: bool(tensor[b, i, j]) == (kind == "keep"), True
    if kind == "lengths":
        sizes = draw(st.lists(st.integers(0, 6), min_size=2, max_size=2))
        return masks.lengths(sizes), lambda b, i, j: j < sizes[b], True
    if kind == "segments":
        queries = draw(st.lists(st.integers(0, 2), min_size=3, max_size=3))
        keys = draw(st.lists(st.integers(0, 2), min_size=5, max_size=5))
        mask = masks.segments(torch.tensor([queries] * 2), torch.tensor([keys] * 2))
        return mask, lambda b, i, j: queries[i] == keys[j], True
    start = draw(st.one_of(st.none(), st.integers(-2, 6)))
    offset = 2 if start is None else start
    if kind == "causal":
        return masks.causal(query_start=start), lambda b, i, j: j <= i + offset, True
    before, after = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    return (
        masks.window(before, after, query_start=start),
        lambda b, i, j: i + offset - before <= j <= i + offset + after,
        True,
    )


@settings(max_examples=150, deadline=None)
@given(boolean_masks(), st.integers(0, 3), st.integers(0, 3))
def test_combinations_equal_their_rule_on_every_block(case: Any, one: int, other: int) -> None:
    mask, rule, _ = case
    expected = torch.tensor([[[rule(b, i, j) for j in range(5)] for i in range(3)] for b in range(2)])
    assert torch.equal(visible_of(mask, (2,), 3, 5), expected)
    start, stop = min(one, other), max(one, other)
    visible, _ = mask.evaluate(Grid((2,), 3, 5, CPU), start, stop)
    rows = torch.ones((), dtype=torch.bool) if visible is None else visible
    assert torch.equal(rows.expand(2, stop - start, 5), expected[:, start:stop])


@settings(max_examples=150, deadline=None)
@given(boolean_masks(), st.integers(0, 2), st.integers(1, 3), st.integers(0, 5), st.integers(0, 5))
def test_parts_equal_the_whole_and_ranges_hide_nothing_visible(
    case: Any, start: int, count: int, one: int, other: int
) -> None:
    mask, rule, _ = case
    stop, keys = min(start + count, 3), slice(min(one, other), max(one, other))
    grid = Grid((2,), 3, 5, CPU)
    expected = torch.tensor([[[rule(b, i, j) for j in range(5)] for i in range(3)] for b in range(2)])
    visible, _ = mask.evaluate_part(grid, start, stop, keys)
    part = torch.ones((), dtype=torch.bool) if visible is None else visible
    assert torch.equal(part.expand(2, stop - start, keys.stop - keys.start), expected[:, start:stop, keys])
    allowed = mask.key_range(grid, start, stop)
    outside = [j for j in range(5) if not allowed.start <= j < allowed.stop]
    assert not expected[:, start:stop, outside].any()
    assert 0 <= allowed.start <= allowed.stop <= 5


def test_a_window_knows_its_keys() -> None:
    grid = Grid((), 100, 100, CPU)
    assert masks.window(5, 2).key_range(grid, 50, 60) == slice(45, 62)
    assert (masks.causal() & masks.window(5, 2)).key_range(grid, 50, 60) == slice(45, 60)
    assert (masks.window(5, 2) | masks.window(9, 0)).key_range(grid, 50, 60) == slice(41, 62)
    assert (~masks.window(5, 2)).key_range(grid, 50, 60) == slice(0, 100)
    nothing = (masks.window(1, 1) & masks.window(1, 1, query_start=500)).key_range(grid, 0, 1)
    assert nothing.start == nothing.stop


def test_masks_for_examples_and_heads_are_not_copied() -> None:
    tensor = torch.rand(2, 1, 3, 5) > 0.3
    block = masks.keep(tensor).evaluate(Grid((2, 7), 3, 5, CPU), 1, 3)
    assert block.visible is not None
    assert block.visible.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert torch.equal(block.visible.expand(2, 7, 2, 5)[:, 4], tensor[:, 0, 1:])
    per_head = torch.rand(7, 3, 5) > 0.3
    assert torch.equal(visible_of(masks.keep(per_head), (2, 7), 3, 5)[1], per_head)


def test_an_explanation_draws_and_counts() -> None:
    # causal hides (0,1) (0,2) (1,2) of each example; lengths hides column 2 of the first, all of the second
    explanation = (masks.causal() & masks.lengths([2, 0])).explain(3, 3)
    assert str(explanation).splitlines() == [
        "causal() & lengths([2, 0]): 3 queries (rows), 3 keys (columns); # may look, . hidden",
        "[0]",
        "#..",
        "##.",
        "##.",
        "[1]",
        "...",
        "...",
        "...",
        "dead rows (no key to look at): [1] 0-2",
        "causal() hides 6 of 18 pairs, 1 of them alone",
        "lengths([2, 0]) hides 12 of 18 pairs, 7 of them alone",
    ]
    assert explanation.visible.shape == (2, 3, 3)
    assert explanation.dead.tolist() == [[False] * 3, [True] * 3]


def test_an_explanation_of_a_large_mask_stays_small() -> None:
    text = str(masks.window(30, 0).explain(1000, 1000))
    assert len(text.splitlines()) < 40
    assert "one character is 32 x 32 pairs" in text
    assert "/" in text
    many = str(masks.lengths(list(range(9))).explain(1, 9))
    assert "and 5 more examples" in many
    assert "dead rows (no key to look at): [0] 0" in many


def test_an_explanation_of_a_bias_says_that_it_adds() -> None:
    bias = torch.tensor([[0.5, -torch.inf], [-torch.inf, -torch.inf]])
    text = str(masks.bias(bias).explain(2, 2))
    assert "bias(float32 (2, 2)) hides 3 of 4 pairs and adds to the scores" in text
    assert "dead rows (no key to look at): 1" in text
    assert "(no keys)" in str(masks.causal().explain(2, 0))
    with pytest.raises(ValueError, match=r"does not broadcast to \(\.\.\., N, M\) = \(3, 3\)"):
        masks.bias(bias).explain(3, 3)


def test_masks_print_as_they_are_written() -> None:
    keep = masks.keep(torch.ones(2, 3).bool(), per_example=True)
    hide = masks.hide(torch.ones(2, 3).bool())
    assert repr((masks.causal(query_start=2) | ~hide) & keep) == (
        "(causal(query_start=2) | ~hide(bool (2, 3))) & keep(bool (2, 3), per_example=True)"
    )
    assert repr(masks.window(1, 2, query_start=0)) == "window(1, 2, query_start=0)"
    assert repr(~(masks.causal() & masks.lengths(3))) == "~(causal() & lengths(3))"
    assert repr(masks.segments(torch.arange(2), torch.arange(9))) == "segments([0, 1], int64 (9,))"
    assert keep.own_leading() == (2,)
    assert masks.segments(torch.zeros(2, 3).long(), torch.zeros(4).long()).own_leading() == (2,)
    assert (~masks.lengths([1, 2])).own_leading() == (2,)
    assert repr(Mask()) == "Mask()"


@settings(max_examples=30, deadline=None)
@given(boolean_masks())
def test_hidden_keys_weigh_exactly_nothing(case: Any) -> None:
    mask, rule, _ = case
    weights = weights_of(mask, (2,), 3, 5)
    for b in range(2):
        for i in range(3):
            keys = [j for j in range(5) if rule(b, i, j)]
            assert all(weights[b, i, j] == 0 for j in range(5) if j not in keys)
            assert weights[b, i].sum().item() == pytest.approx(1.0 if keys else 0.0, abs=1e-6)


def test_biases_add_and_booleans_join() -> None:
    left, right = torch.randn(3, 5), torch.randn(5)
    grid = Grid((), 3, 5, CPU)
    block = (masks.bias(left) & masks.bias(right)).evaluate(grid, 1, 3)
    assert block.bias is not None
    assert torch.equal(block.bias, (left + right)[1:])
    block = (masks.causal() & masks.bias(left)).evaluate(grid, 0, 3)
    assert block.bias is not None
    assert block.visible is not None
    assert torch.equal(block.bias, left)


def test_case08_minus_infinity_and_booleans_hide_alike() -> None:
    distance = torch.tensor(
        [[-0.25 * abs(i - j) if j <= i else -torch.inf for j in range(5)] for i in range(5)]
    )
    finite = distance.masked_fill(distance.isinf(), 0.0)
    x = torch.randn(2, 5, 3)
    for path in ("reference", "fused"):
        both = masks.bias(distance) & masks.lengths([5, 3])
        apart = masks.bias(finite) & masks.causal() & masks.lengths([5, 3])
        one = attend(x, x, x, mask=both, path=path)
        assert torch.allclose(one, attend(x, x, x, mask=apart, path=path), atol=1e-6)


def test_plain_causal_is_recognised_for_squares_only() -> None:
    def known(mask: Mask, N: int, M: int) -> bool:
        return mask.is_plain_causal(Grid((), N, M, CPU))

    assert known(masks.causal(), 4, 4)
    assert not known(masks.causal(), 3, 4)
    assert not known(masks.causal(query_start=1), 4, 4)
    assert not known(masks.window(3, 0), 4, 4)
    assert not known(masks.keep(torch.ones(4, 4).bool().tril()), 4, 4)


def test_case09_zero_one_float_warns_and_still_adds() -> None:
    ones = torch.ones(5, 5).tril()
    with pytest.warns(UserWarning, match=r"only 0 and 1.*masks\.keep.*masks\.hide"):
        mask = masks.bias(ones)
    x = torch.randn(5, 3)
    _, weights = attend(x, x, x, mask=mask, observe=observations.Weights())
    assert torch.allclose(weights, torch.softmax(x @ x.mT / 3**0.5 + ones, -1), atol=1e-6)
    masks.bias(torch.zeros(5, 5))  # zeros alone are a bias that starts at nothing: no warning
    masks.bias(ones * 2)


def test_raw_tensors_are_refused_with_the_cure() -> None:
    x = torch.randn(3, 2)
    with pytest.raises(TypeError, match=r"raw tensor.*masks\.keep.*masks\.hide"):
        attend(x, x, x, mask=torch.ones(3, 3).bool())  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"expected a mask from headlights\.masks, got str"):
        attend(x, x, x, mask="causal")  # type: ignore[call-overload]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float32], ids=str)
def test_only_bool_tensors_say_who_may_look(dtype: torch.dtype) -> None:
    for maker, name in ((masks.keep, "keep"), (masks.hide, "hide")):
        with pytest.raises(TypeError, match=rf"{name}: expected a bool tensor, got a {dtype} tensor"):
            maker(torch.ones(3, 3, dtype=dtype))
    with pytest.raises(TypeError, match="keep: expected a bool tensor, got list"):
        masks.keep([True])  # type: ignore[arg-type]


def test_only_float_tensors_are_added() -> None:
    for dtype in (torch.bool, torch.int64):
        with pytest.raises(TypeError, match=rf"bias: expected a float tensor.*got a {dtype} tensor"):
            masks.bias(torch.ones(3, 3, dtype=dtype))


def test_lengths_and_ids_are_integers() -> None:
    for bad in (torch.ones(2), torch.ones(2).bool(), [1.5, 2.0]):
        with pytest.raises(TypeError, match=r"lengths: expected integers, got a torch.(float32|bool) tensor"):
            masks.lengths(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="key_ids: expected integers"):
        masks.segments(torch.ones(2).long(), torch.ones(2))
    with pytest.raises(ValueError, match="segments: expected ids of shape"):
        masks.segments(torch.tensor(1), torch.tensor(1))


def test_a_bias_has_no_opposite() -> None:
    bias = masks.bias(torch.randn(3, 3))
    with pytest.raises(TypeError, match="~: a bias has no opposite"):
        (~bias).evaluate(Grid((), 3, 3, CPU), 0, 3)
    with pytest.raises(TypeError, match=r"\|: a bias has no opposite and no alternative"):
        masks.causal() | (bias & masks.causal())
    with pytest.raises(TypeError, match="unsupported operand"):
        masks.causal() & torch.ones(3, 3)  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        masks.causal() | None  # type: ignore[operator]


def test_windows_are_not_negative() -> None:
    with pytest.raises(ValueError, match="window: before and after must be 0 or more, got -1 and 0"):
        masks.window(-1, 0)


def test_shapes_that_do_not_fit_are_named() -> None:
    x = torch.randn(2, 3, 5, 7)
    with pytest.raises(
        ValueError, match=r"shape \(2, 1, 4\) does not broadcast to .* = \(2, 3, 5, 5\).*right"
    ):
        attend(x, x, x, mask=masks.keep(torch.ones(2, 1, 4).bool()))
    with pytest.raises(ValueError, match=r"shape \(3, 5\) does not broadcast.*left \(per_example=True\)"):
        attend(x, x, x, mask=masks.keep(torch.ones(3, 5).bool(), per_example=True))
    with pytest.raises(ValueError, match=r"shape \(9, 2, 3, 5, 5\) does not broadcast"):
        attend(x, x, x, mask=masks.bias(torch.zeros(9, 2, 3, 5, 5)))
    with pytest.raises(
        ValueError, match=r"lengths: its leading dimensions \(3,\) do not fit \(2, 3\) of the inputs"
    ):
        attend(x, x, x, mask=masks.lengths([1, 2, 3]))
    with pytest.raises(ValueError, match=r"lengths: its leading dimensions \(2, 3, 1\) do not fit"):
        attend(x, x, x, mask=masks.lengths(torch.ones(2, 3, 1).long()))
    ids = torch.ones(2, 5).long()
    with pytest.raises(ValueError, match=r"key_ids: expected 5 ids in the last dimension, got \(2, 4\)"):
        attend(x, x, x, mask=masks.segments(ids, ids[:, :4]))


def test_a_mask_must_define_its_rule() -> None:
    with pytest.raises(NotImplementedError, match="Mask must define evaluate"):
        Mask().evaluate(Grid((), 1, 1, CPU), 0, 1)


@pytest.mark.parametrize("path", ["auto", "reference", "blocked", "fused"])
@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 2)], ids=str)
def test_a_mask_of_one_dimension_is_over_the_keys(path: Any, leading: tuple[int, ...]) -> None:
    query, key = torch.randn(*leading, 5, 3).double(), torch.randn(*leading, 7, 3).double()
    shown = torch.arange(7) < 4
    for mask, square in [
        (masks.keep(shown), masks.keep(shown.expand(5, 7))),
        (masks.hide(shown), masks.hide(shown.expand(5, 7))),
        (masks.bias(torch.arange(7.0).double()), masks.bias(torch.arange(7.0).double().expand(5, 7))),
        (masks.keep(torch.tensor(True)), masks.keep(torch.ones(5, 7, dtype=torch.bool))),
    ]:
        found = attend(query, key, key, mask=mask, path=path)
        assert torch.allclose(found, attend(query, key, key, mask=square, path="reference"), atol=1e-12)


def test_explain_joins_leading_dimensions_in_either_order() -> None:
    one, two = masks.keep(torch.ones(1, 3, 3).bool()), masks.lengths([2, 3])
    assert torch.equal((one & two).explain(3, 3).visible, (two & one).explain(3, 3).visible)
    wide, high = masks.keep(torch.ones(2, 1, 3, 3).bool()), masks.keep(torch.ones(4, 3, 3).bool())
    assert (wide & high).explain(3, 3).visible.shape == (2, 4, 3, 3)
