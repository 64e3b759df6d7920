"""The blocked path: memory, skipped work, dropout, closures, refusals, and when it is used."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from headlights import attend, masks, observations, scores
from headlights.attention import Mask, Score, _attend, _blocks
from headlights.attention._blocks import block_rows
from headlights.attention._crossovers import blocks_pay
from headlights.attention._mask_rules import Block, Grid
from tests.attention.oracle import close

CPU = torch.device("cpu")
PATHS: tuple[Any, Any] = ("reference", "blocked")


class Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that any operation makes, and how many numbers are made in all."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest: int = 0
        self.total: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (list, tuple)) else (result,):
            if isinstance(tensor, Tensor):
                size = tensor.untyped_storage().nbytes() // max(tensor.element_size(), 1)
                self.largest = max(self.largest, size)
                self.total += tensor.numel() if not tensor._is_view() else 0
        return result


def _leaves(N: int, M: int, *leading: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(*leading, n, 8, dtype=dtype).requires_grad_() for n in (N, M, M)]


@pytest.mark.parametrize("path", ["blocked", "reference"])
def test_no_tensor_of_all_weights_exists(path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "FEWEST_ROWS", 4)
    monkeypatch.setattr(_blocks, "MOST_ROWS", 4)
    N, M = 67, 61
    leaves = _leaves(N, M, 2)
    asked = (
        observations.Entropy(differentiable=True),
        observations.TopWeights(3, differentiable=True),
        observations.Received(differentiable=True),
        observations.Rows([1, 66], differentiable=True),
    )
    with Sizes() as sizes:
        context, (entropy, top, received, rows) = attend(
            *leaves, mask=masks.causal(), dropout=0.2, observe=asked, path=path
        )
        loss = context.sum() + entropy.sum() + top.values.sum() + received[0, 3] + rows.sum()
        torch.autograd.grad(loss, leaves)
    held = 2 * N * M
    assert (sizes.largest < held / 4) == (path == "blocked")


def test_a_windows_work_grows_with_its_width_and_not_with_the_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def work(N: int) -> int:
        leaves = _leaves(N, N, 1)
        with Sizes() as sizes:
            context = attend(*leaves, mask=masks.window(16, 0), path="blocked")
            torch.autograd.grad(context.sum(), leaves)
        return int(sizes.total)

    assert work(1024) < 2.1 * work(512)  # N*N would be 4 times


def test_hidden_keys_and_blocks_are_not_scored(small_blocks: None) -> None:
    seen: list[tuple[int, int]] = []

    class Spy(scores.Dot):
        def forward(self, query: Tensor, prepared: Any, *, start: int | None = None) -> Tensor:
            seen.append((query.shape[-2], prepared.length))
            return super().forward(query, prepared, start=start)

    query, key = torch.randn(1, 6, 3), torch.randn(1, 9, 3)
    visible = torch.zeros(6, 9, dtype=torch.bool)
    visible[0, 2], visible[1, 4] = True, True  # the second block sees nothing
    visible[4:] = True
    with torch.no_grad():
        context = attend(query, key, key, score=Spy(), mask=masks.keep(visible), path="blocked")
    assert seen == [(2, 3), (2, 9)]
    assert (context[:, 2:4] == 0).all()
    seen.clear()
    with torch.no_grad():
        attend(query, key, key, score=Spy(), mask=masks.causal() & masks.lengths([5]), path="blocked")
    assert seen == [(2, 5), (2, 5), (2, 5)]


@pytest.mark.parametrize("mask", [None, masks.causal() & masks.lengths([5, 0])], ids=["no_mask", "masked"])
def test_dropout_repeats_exactly_in_the_backward_pass(small_blocks: None, mask: Mask | None) -> None:
    query, key, _ = (torch.randn(2, 7, 3, dtype=torch.float64).requires_grad_() for _ in range(3))
    value = torch.eye(7, dtype=torch.float64).expand(2, 7, 7).clone().requires_grad_()
    torch.manual_seed(5)
    applied = attend(query, key, value, mask=mask, dropout=0.4, path="blocked")  # identity values
    factor = (applied.detach() != 0).double() / 0.6
    weights = attend(query, key, value, mask=mask, path="reference")
    upstream = torch.randn_like(applied)
    assert close(applied, (weights * factor) @ value)
    expected = torch.autograd.grad(((weights * factor) @ value * upstream).sum(), (query, key))
    for got, right in zip(
        torch.autograd.grad((applied * upstream).sum(), (query, key)), expected, strict=True
    ):
        assert close(got, right)


def test_dropout_follows_the_global_seed_and_moves_on(small_blocks: None) -> None:
    x = torch.randn(1, 7, 3)

    def run() -> Tensor:
        return attend(x, x, x, dropout=0.5, path="blocked")

    torch.manual_seed(3)
    first, second = run(), run()
    torch.manual_seed(3)
    assert torch.equal(first, run())
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    attend(x, x, x, path="blocked")  # nothing dropped, nothing drawn
    assert torch.equal(first, run())


def test_s31_whatever_a_callable_closes_over_gets_its_gradient(small_blocks: None) -> None:
    root = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    derived = root.exp() + root  # not a leaf, and used beside the leaf that it comes from
    layer = nn.Linear(3, 3).double()
    leaves = [torch.randn(2, n, 3, dtype=torch.float64).requires_grad_() for n in (5, 7, 7)]

    def score(query: Tensor, key: Tensor) -> Tensor:
        return torch.tanh(layer(query)) @ key.mT * derived - root * torch.cdist(query, key)

    wanted = [*leaves, root, *layer.parameters()]
    grads = [
        torch.autograd.grad(
            attend(*leaves, score=score, mask=masks.causal(), path=path).square().sum(),
            wanted,
            retain_graph=True,
        )
        for path in PATHS
    ]
    for right, got in zip(*grads, strict=True):
        assert close(got, right)


def test_hooks_on_parameters_run_once(small_blocks: None) -> None:
    score = scores.Bilinear(8, 8)
    leaves = _leaves(7, 7, 1)
    calls: list[Tensor] = []
    score.W.register_hook(calls.append)  # type: ignore[no-untyped-call]
    attend(*leaves, score=score, path="blocked").sum().backward()  # type: ignore[no-untyped-call]
    assert len(calls) == 1
    assert score.W.grad is not None
    assert torch.equal(calls[0], score.W.grad)


def test_a_learned_bias_gets_its_gradient(small_blocks: None) -> None:
    class Relative(Mask):
        """One learned number for each distance, written by a user."""

        bias_dtype = torch.float64

        def __init__(self) -> None:
            self.table = torch.randn(32, dtype=torch.float64, requires_grad=True)

        def evaluate(self, grid: Grid, start: int, stop: int) -> Block:
            distance = torch.arange(grid.keys) - torch.arange(start, stop)[:, None]
            return Block(None, self.table[distance + 16])

    mask = Relative()
    leaves = _leaves(7, 5, 2, dtype=torch.float64)
    grads = [
        torch.autograd.grad(
            attend(*leaves, mask=masks.causal() & mask, path=path).square().sum(), [*leaves, mask.table]
        )
        for path in PATHS
    ]
    for right, got in zip(*grads, strict=True):
        assert close(got, right)


def test_an_unfinished_gradient_is_not_confused_by_a_freed_graph(small_blocks: None) -> None:
    weight = torch.randn(3, 3, requires_grad=True)
    outer = weight.exp()
    x = torch.randn(1, 5, 3)
    context = attend(x, x, x, score=lambda q, k: (q @ outer) @ k.mT, path="blocked")
    (context.sum() + outer.sum()).backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None


def test_the_backward_pass_scores_under_the_forward_passs_autocast(small_blocks: None) -> None:
    seen: list[tuple[bool, bool]] = []

    def score(query: Tensor, key: Tensor) -> Tensor:
        seen.append((torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()))
        return query @ key.mT

    leaves = _leaves(4, 4, 1)
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(*leaves, score=score, path="blocked")
    torch.autograd.grad(context.sum(), leaves)
    assert seen == [(True, False)] * 5  # a probe, two blocks, and the two again


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_in_both_passes(small_blocks: None, dtype: torch.dtype) -> None:
    score = scores.Bilinear(8, 8)
    leaves = _leaves(7, 11, 2)
    results = []
    for path in PATHS:
        with torch.autocast("cpu", dtype):
            context = attend(*leaves, score=score, mask=masks.lengths([11, 6]), path=path)
        assert context.dtype == dtype
        results.append([context, *torch.autograd.grad(context.float().square().sum(), [*leaves, score.W])])
    for right, got in zip(*results, strict=True):
        assert got.dtype == right.dtype
        assert close(got, right.double(), dtype)


def test_second_derivatives_are_refused_where_they_are_taken(small_blocks: None) -> None:
    leaves = _leaves(5, 5, 1)
    context = attend(*leaves, path="blocked")
    (first,) = torch.autograd.grad(context.sum(), leaves[0], create_graph=True)
    right = torch.autograd.grad(attend(*leaves, path="reference").sum(), leaves[0])[0]
    assert close(first, right.double())  # asking for a graph alone is no offence
    with pytest.raises(RuntimeError, match="path: 'blocked' has no second derivative; use path='reference'"):
        first.sum().backward()  # type: ignore[no-untyped-call]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, while compiling
def test_calls_that_are_not_run_eagerly_are_refused() -> None:
    x = torch.randn(2, 5, 3)

    def run(x: Tensor) -> Tensor:
        return attend(x, x, x, path="blocked")

    refused = "path: 'blocked' works neither inside torch.func nor in forward mode; use path='auto'"
    with pytest.raises(ValueError, match=refused):
        torch.func.vmap(run)(x)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(ValueError, match=refused):
        run(torch.autograd.forward_ad.make_dual(x, x))  # type: ignore[no-untyped-call]
    with pytest.raises(ValueError, match="path: 'blocked' needs tensors with values, not meta tensors"):
        run(x.to("meta"))
    with pytest.raises(torch._dynamo.exc.Unsupported, match="path: 'blocked' runs in eager mode only"):
        torch.compile(run, fullgraph=True, backend="eager")(x)


@pytest.mark.parametrize(
    ("size", "mask", "score", "expected"),
    [
        (1, None, None, "fused"),
        (8192, None, None, "fused"),
        (1, None, scores.Bilinear(2, 2), "reference"),
        (8192, None, scores.Bilinear(2, 2), "blocked"),
        (8192, None, lambda q, k: q @ k.mT, "reference"),
        (8192, masks.causal(), None, "fused"),
        (8192, masks.window(64, 0), None, "blocked"),
        (8192, masks.window(64, 0) & masks.lengths(9), None, "blocked"),
        (8192, masks.window(4096, 0), None, "blocked"),  # shows 3/8 of the pairs
        (8192, masks.window(8000, 0) & masks.lengths(4000), None, "blocked"),
        (8192, masks.window(8000, 8000), None, "fused"),
        (8192, masks.lengths(9), None, "fused"),  # each example alone
        (512, masks.window(64, 0), None, "blocked"),
        (512, masks.window(200, 0), None, "fused"),
        (512, masks.segments(torch.arange(512) // 64, torch.arange(512) // 64), None, "blocked"),
        (512, masks.segments(torch.arange(512) % 8, torch.arange(512) % 8), None, "fused"),
        (64, masks.window(2, 0), None, "fused"),
    ],
)
def test_auto_chooses_by_size(size: int, mask: Mask | None, score: Any, expected: str) -> None:
    grid = Grid((2,), size, size, CPU)
    query = torch.zeros(2, 1, 2)
    chosen = _attend.choose_path(
        "auto", query, score=scores.as_score(score), mask=mask, observed=False, grid=grid
    )
    assert chosen == expected


def test_auto_never_cuts_what_is_traced() -> None:
    grid = Grid((), 8192, 8192, CPU)
    chosen = _attend.choose_path(
        "auto",
        torch.zeros(1, 2, device="meta"),
        score=scores.Bilinear(2, 2),
        mask=masks.window(2, 2),
        observed=True,
        grid=grid,
    )
    assert chosen == "reference"


@pytest.mark.parametrize("N", [1, 5, 17, 100, 5000])
@pytest.mark.parametrize("mask", [None, masks.window(3, 0), masks.window(300, 5), ~masks.causal()], ids=repr)
@pytest.mark.parametrize("width", [1, 512])
def test_blocks_stay_within_their_budget(N: int, mask: Mask | None, width: int) -> None:
    grid = Grid((3, 8), N, 701, CPU)
    rows = block_rows(grid, mask, width)
    assert 1 <= rows <= N
    least = rows <= _blocks.FEWEST_ROWS
    assert least or math.prod(grid.leading) * rows * 701 * width <= 8 * _blocks.BLOCK_ELEMENTS
    assert not blocks_pay(scores.Dot(), mask, grid._replace(queries=1), fused=False)


@pytest.mark.parametrize("kind", [scores.Dot, lambda: scores.Additive(8, 8, 3)], ids=["dot", "additive"])
def test_broadcast_inputs_get_their_own_shapes_of_gradient(
    small_blocks: None, kind: Callable[[], Score]
) -> None:
    score = kind()
    query = torch.randn(5, 1, 7, 8, requires_grad=True)
    key = torch.randn(3, 4, 8, requires_grad=True)
    value = torch.randn(2, 1, 1, 4, 6, requires_grad=True)
    grads = [
        torch.autograd.grad(
            attend(query, key, value, score=score, dropout=0.0, path=path).square().sum(),
            (query, key, value, *score.parameters()),
        )
        for path in PATHS
    ]
    for right, got in zip(*grads, strict=True):
        assert close(got, right.double(), torch.float32)
