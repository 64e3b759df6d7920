"""What hidden keys cost, how tiles join, and when padded examples are computed alone."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from headlights import attend, masks, observations
from headlights.attention import _blocks, _tiles
from headlights.attention._crossovers import real_lengths
from headlights.attention._mask_rules import Grid
from tests.attention.oracle import close
from tests.attention.test_blocked import CPU, PATHS, Sizes


class Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the multiplications of all products of matrices, and what the kernel is given."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.multiplied = 0
        self.kernel_keys: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        kind = name.removeprefix("aten::").removesuffix(".out")
        if kind in ("bmm", "mm", "baddbmm", "addmm"):
            left, right = args[-2:]  # what is added comes before them
            self.multiplied += left.numel() * right.shape[-1]
        if name.startswith("aten::_scaled_dot_product"):
            self.kernel_keys.append(args[1].shape[-2])
        return func(*args, **(kwargs or {}))


ASKED = (
    observations.TopWeights(3),
    observations.Entropy(),
    observations.Received(),
    observations.Rows([40, 3]),
)


def test_observing_a_window_costs_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "MOST_ROWS", 16)

    def work(N: int) -> int:
        x = torch.randn(1, 2, N, 8)
        with Sizes() as sizes, torch.no_grad():
            attend(x, x, x, mask=masks.window(16, 0), observe=ASKED, path="blocked")
        return int(sizes.total)

    assert work(1024) < 2.2 * work(512)  # padded to whole rows it would be 4 times


@pytest.mark.parametrize("padded", [True, False])
def test_padding_and_segments_cost_their_real_tokens(padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tiles, "TILE_SCORES", 2**8)
    monkeypatch.setattr(_blocks, "FEWEST_ROWS", 4)
    x = torch.randn(2, 2, 64, 8)
    ids = torch.arange(64) // 16
    mask = masks.lengths([64, 8]) if padded else masks.segments(ids, ids)
    with Products() as products, torch.no_grad():
        got = attend(x, x, x, mask=mask, path="blocked")
    # two products of 8 numbers a pair, 2 heads; pairs: 64 queries by 64 + 8 keys, or 64 by 16 in 2 examples
    assert products.multiplied == 2 * 8 * 2 * 64 * (72 if padded else 32)
    assert close(got, attend(x, x, x, mask=mask, path="reference").double())


def test_the_kernel_gets_each_example_of_a_padded_batch_alone() -> None:
    query, key, value = (torch.randn(3, 4, 64, 8).requires_grad_() for _ in range(3))
    mask = masks.lengths([64, 7, 0])
    with Products() as products:
        got = attend(query, key, value, mask=mask, path="fused")
    assert products.kernel_keys == [64, 7]  # and nothing for the empty one
    right = attend(query, key, value, mask=mask, path="reference")
    assert close(got, right.double())
    assert (got[2] == 0).all()
    for mine, theirs in zip(
        torch.autograd.grad(got.square().sum(), (query, key, value)),
        torch.autograd.grad(right.square().sum(), (query, key, value)),
        strict=True,
    ):
        assert close(mine, theirs.double(), torch.float32)


@pytest.mark.parametrize(
    ("size", "lengths", "expected"),
    [
        (64, [99, 7, 9], [64, 7, 9]),  # saves 4 * 64 * (0 + 57 + 55) / 3 = 9557 pairs an example
        (64, [64, 63, 64], None),  # saves too little
        (16, [1, 1, 1], None),  # small enough to compute with its padding
        (64, [[64] * 4, [1] * 4, [1] * 4], None),  # one length for each head
    ],
)
def test_examples_are_parted_where_that_pays(size: int, lengths: Any, expected: list[int] | None) -> None:
    grid = Grid((3, 4), size, size, CPU)
    query = torch.zeros(1)
    assert real_lengths(query, masks.lengths(torch.tensor(lengths)), grid) == expected
    assert real_lengths(query.to("meta"), masks.lengths(torch.tensor(lengths)), grid) is None
    assert real_lengths(query, masks.causal(), grid) is None


def test_rubbish_in_hidden_keys_has_no_weight() -> None:
    query, key, value = (torch.randn(2, 2, 5, 8) for _ in range(3))
    key[1, :, 3:] = torch.nan  # in the same tile as an example that sees all keys
    for path in PATHS:
        got = attend(query, key, value, mask=masks.lengths([5, 3]), path=path)
        right = attend(query[1], key[1, :, :3], value[1, :, :3], path="reference")
        assert close(got[1], right.double())


@pytest.mark.parametrize("threads", [1, 3])
def test_tiles_of_heads_and_rows_give_what_the_whole_gives(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(_tiles, "TILE_SCORES", 2**8)
    monkeypatch.setattr(_blocks, "FEWEST_ROWS", 2)
    query = torch.randn(2, 5, 41, 3, dtype=torch.float64)
    key, value = (torch.randn(2, 5, 37, 3, dtype=torch.float64) for _ in range(2))
    asked = (*ASKED[:3], observations.Rows([40, 3, 3]), observations.MeanWeights(), observations.Weights())
    per_head = masks.keep(torch.rand(5, 41, 37) > 0.4) & masks.bias(torch.randn(5, 41, 1).double())
    for mask in (None, masks.window(5, 2) & masks.lengths([37, 0]), masks.causal(), per_head):
        with torch.no_grad():
            right, got = (attend(query, key, value, mask=mask, observe=asked, path=path) for path in PATHS)
        assert close(got[0], right[0])
        for mine, theirs in zip(got[1], right[1], strict=True):
            pairs = zip(mine, theirs, strict=True) if isinstance(mine, tuple) else [(mine, theirs)]
            assert all(torch.allclose(one.double(), other.double(), atol=1e-12) for one, other in pairs)
