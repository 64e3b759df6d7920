"""Every path against plain loops in float64, forward and backward, over scores, masks, shapes and types."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import attend, masks, observations, scores
from headlights.attention import Mask, Score
from tests.attention.oracle import PairScore, close, dot, loops, scaled_dot

pytestmark = pytest.mark.usefixtures("small_blocks")
PATHS: list[Any] = ["reference", "blocked", "fused"]

# name -> leading dimensions, N, M, E, E_v
SHAPES: dict[str, tuple[tuple[int, ...], int, int, int, int]] = {
    "plain": ((), 3, 5, 2, 7),
    "batch": ((2,), 3, 5, 2, 2),
    "heads": ((2, 3), 5, 5, 2, 2),
    "more_keys": ((3, 2), 7, 11, 2, 5),
    "three_leading": ((2, 1, 3), 2, 5, 3, 2),
    "one_query": ((2, 3), 1, 5, 2, 2),
    "one_key": ((2,), 3, 1, 2, 5),
    "more_queries": ((2, 2), 5, 3, 2, 2),
    "no_query": ((2, 3), 0, 5, 2, 3),
    "no_key": ((2, 3), 5, 0, 2, 3),
    "nothing": ((0, 3), 0, 0, 2, 3),
    "empty_batch": ((0,), 3, 5, 2, 3),
}


def _random_visible(leading: tuple[int, ...], N: int, M: int) -> Tensor:
    visible = torch.rand(*leading, N, M) > 0.4
    visible[..., : N // 2, :] &= torch.rand(M) > 0.3
    if N > 1:
        visible[..., 1, :] = False  # a dead row
    return visible


MaskCase = Callable[[tuple[int, ...], int, int], tuple[Mask | None, Tensor | None, Tensor | None]]


def _no_mask(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    return None, None, None


def _keep(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    visible = _random_visible(leading, N, M)
    return masks.keep(visible), visible, None


def _hide_rows(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    hidden = torch.rand(N, M) > 0.5
    return masks.hide(hidden), ~hidden, None


def _causal(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    visible = torch.tensor([[j <= i + M - N for j in range(M)] for i in range(N)], dtype=torch.bool)
    return masks.causal(), visible.reshape(N, M), None


def _lengths_mask(
    leading: tuple[int, ...], N: int, M: int
) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    if not leading:
        return masks.lengths(2), torch.arange(M) < 2, None
    sizes = torch.arange(leading[0]) * 2  # the first example is empty
    visible = torch.stack([torch.arange(M) < size for size in sizes]) if leading[0] else torch.zeros(0, M)
    return masks.lengths(sizes), visible.bool().reshape(leading[0], *(1,) * len(leading), M), None


def _bias(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    bias = torch.randn(N, M, dtype=torch.float64).masked_fill(torch.rand(N, M) > 0.7, -torch.inf)
    if N > 2:
        bias[2] = -torch.inf  # a dead row
    return masks.bias(bias), None, bias


def _both(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    mask, visible, _ = _keep(leading, N, M)
    assert mask is not None
    bias = torch.randn(*leading, 1, M, dtype=torch.float64)
    # Some rows are dead only because of both together.
    bias = bias.masked_fill(torch.rand(M) > 0.5, -torch.inf)
    return masks.bias(bias) & mask, visible, bias


def _window(leading: tuple[int, ...], N: int, M: int) -> tuple[Mask | None, Tensor | None, Tensor | None]:
    visible = [[i + M - N - 1 <= j <= i + M - N + 1 for j in range(M)] for i in range(N)]
    return masks.window(1, 1), torch.tensor(visible, dtype=torch.bool).reshape(N, M), None


MASKS: dict[str, MaskCase] = {
    "window": _window,
    "no_mask": _no_mask,
    "keep": _keep,
    "hide": _hide_rows,
    "causal": _causal,
    "lengths": _lengths_mask,
    "bias": _bias,
    "bias_and_keep": _both,
}


def _learned_dot() -> tuple[Score, PairScore]:
    score = scores.Dot(0.7, learned=True).double()
    return score, lambda q, k: score.scale * (q * k).sum()


def _additive() -> tuple[Score, PairScore]:
    score = scores.Additive(2, 2, 5, dtype=torch.float64)
    return score, lambda q, k: torch.tanh(q @ score.W1 + k @ score.W2) @ score.b


def _bilinear() -> tuple[Score, PairScore]:
    score = scores.Bilinear(2, 2, dtype=torch.float64)
    return score, lambda q, k: q @ score.W @ k


def _function() -> tuple[Score, PairScore]:
    return scores.Function(lambda q, k: -(torch.cdist(q, k) ** 2)), lambda q, k: -((q - k) ** 2).sum()


SCORES: dict[str, Callable[[], tuple[Any, PairScore]]] = {
    "default": lambda: (None, scaled_dot),
    "scaled_dot": lambda: (scores.ScaledDot(), scaled_dot),
    "dot": lambda: (scores.Dot(), dot(1.0)),
    "dot_zero": lambda: (scores.Dot(0.0), dot(0.0)),
    "dot_negative": lambda: (scores.Dot(-1.5), dot(-1.5)),
    "dot_learned": _learned_dot,
    "bilinear": _bilinear,
    "additive": _additive,
    "callable": _function,
}
FUSED_SCORES = ["default", "scaled_dot", "dot", "dot_zero", "dot_negative"]
NAMES = ["query", "key", "value", *["parameter"] * 3]
GRID = [(path, name) for path in PATHS for name in SCORES if path != "fused" or name in FUSED_SCORES]


def _inputs(shape: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    leading, N, M, E, E_v = SHAPES[shape]

    def draw(*size: int) -> Tensor:
        return torch.randn(*leading, *size, dtype=torch.float64).to(dtype).requires_grad_()

    return draw(N, E), draw(M, E), draw(M, E_v)


def _compare(
    inputs: tuple[Tensor, ...], context: Tensor, expected: Tensor, dtype: torch.dtype, extra: list[Tensor]
) -> None:
    assert context.dtype == dtype
    assert close(context, expected)
    factor = torch.randn_like(expected)
    leaves = [*inputs, *extra]
    # `+ 0 * sum` joins inputs that the loops never touch, where there is no visible key.
    joined = (expected * factor).sum() + sum(0 * leaf.double().sum() for leaf in leaves)
    right = torch.autograd.grad(joined, leaves, retain_graph=True)
    got = torch.autograd.grad((context.double() * factor).sum(), leaves)
    for name, mine, theirs in zip(NAMES, got, right, strict=False):
        assert close(mine, theirs.double(), dtype), name


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask_name", MASKS)
@pytest.mark.parametrize("path", PATHS)
def test_s37_s38_case17_masks_and_shapes_equal_loops(path: Any, mask_name: str, shape: str) -> None:
    inputs = _inputs(shape)
    leading, N, M, _, _ = SHAPES[shape]
    mask, visible, bias = MASKS[mask_name](leading, N, M)
    expected, weights = loops(*inputs, scaled_dot, visible, bias)
    _compare(inputs, attend(*inputs, mask=mask, path=path), expected, torch.float64, [])
    observing: Any = "reference" if path == "fused" else path
    _, seen = attend(*inputs, mask=mask, observe=observations.Weights(), path=observing)
    assert close(seen, weights)
    assert not seen.requires_grad


@pytest.mark.parametrize("mask_name", ["no_mask", "causal", "lengths", "bias_and_keep"])
@pytest.mark.parametrize(("path", "score_name"), GRID)
def test_s27_s28_s29_s30_s31_scores_equal_loops(path: Any, score_name: str, mask_name: str) -> None:
    inputs = _inputs("heads")
    leading, N, M, _, _ = SHAPES["heads"]
    score, pair_score = SCORES[score_name]()
    mask, visible, bias = MASKS[mask_name](leading, N, M)
    expected, _ = loops(*inputs, pair_score, visible, bias)
    parameters = [] if score is None else list(score.parameters())
    _compare(inputs, attend(*inputs, score=score, mask=mask, path=path), expected, torch.float64, parameters)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", ["plain", "heads", "one_query"])
@pytest.mark.parametrize("mask_name", ["no_mask", "keep", "causal"])
@pytest.mark.parametrize("path", PATHS)
def test_types_equal_loops_to_rounding(path: Any, mask_name: str, shape: str, dtype: torch.dtype) -> None:
    inputs = _inputs(shape, dtype)
    leading, N, M, _, _ = SHAPES[shape]
    mask, visible, bias = MASKS[mask_name](leading, N, M)
    expected, weights = loops(*inputs, scaled_dot, visible, bias)
    _compare(inputs, attend(*inputs, mask=mask, path=path), expected, dtype, [])
    _, seen = attend(*inputs, mask=mask, observe=observations.Weights())
    assert seen.dtype == torch.float32
    assert close(seen, weights)


@pytest.mark.parametrize("path", PATHS)
def test_leading_dimensions_broadcast(path: Any) -> None:
    query, key, value = torch.randn(5, 1, 2, 3), torch.randn(7, 4, 3), torch.randn(5, 1, 4, 2)
    visible = torch.rand(5, 1, 1, 4) > 0.3
    expected, _ = loops(
        query.expand(5, 7, 2, 3), key.expand(5, 7, 4, 3), value.expand(5, 7, 4, 2), scaled_dot, visible
    )
    assert close(attend(query, key, value, mask=masks.keep(visible), path=path), expected)
    _, seen = attend(query, key, value, observe=observations.Weights())
    assert seen.shape == (5, 7, 2, 4)
    _, seen = attend(query[0, 0], key[0], value, observe=observations.Weights())
    assert seen.shape == (5, 1, 2, 4)  # one set of weights for several sets of values


@pytest.mark.parametrize("path", PATHS)
def test_gradcheck(path: Any) -> None:
    inputs = _inputs("batch")
    mask = masks.lengths(torch.tensor([3, 0])) & masks.causal()
    assert torch.autograd.gradcheck(lambda *leaves: attend(*leaves, mask=mask, path=path), inputs)


def test_double_backward_of_the_reference() -> None:
    inputs = _inputs("batch")
    mask = masks.lengths(torch.tensor([3, 0]))
    assert torch.autograd.gradgradcheck(lambda *leaves: attend(*leaves, mask=mask, path="reference"), inputs)


@pytest.mark.parametrize("path", PATHS)
def test_bias_is_learned(path: Any) -> None:
    inputs = _inputs("heads")
    bias = torch.randn(3, 5, 5, dtype=torch.float64)
    bias[:, 2] = -torch.inf
    bias.requires_grad_()
    expected, _ = loops(*inputs, scaled_dot, None, bias)
    (right,) = torch.autograd.grad(expected.square().sum(), bias)
    (got,) = torch.autograd.grad(attend(*inputs, mask=masks.bias(bias), path=path).square().sum(), bias)
    assert close(got, right)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("path", PATHS)
def test_case01_case02_dead_rows_give_zero_context_and_zero_gradient(path: Any) -> None:
    inputs = _inputs("heads")
    mask = masks.hide(torch.ones(5, 5, dtype=torch.bool))
    with torch.autograd.detect_anomaly(check_nan=True):
        context = attend(*inputs, mask=mask, path=path)
        assert (context == 0).all()
        for grad in torch.autograd.grad(context.sum(), inputs):
            assert (grad == 0).all()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("E_v", [64, 3], ids=["square", "narrow_values"])
def test_case11_float16_products_beyond_its_range(path: Any, E_v: int) -> None:
    # 64 components of 100: the scaled product is 64 * 100 * 100 / 8 = 80000, float16 ends at 65504.
    query = torch.full((1, 1, 4, 64), 100.0)
    query[..., 1, :] = -100.0
    query[..., 2, :32] = 50.0
    query[..., 3, 0] = 99.5
    query = query.half()
    value = torch.randn(1, 1, 4, E_v).half()
    expected, weights = loops(query, query, value, scaled_dot)
    assert close(attend(query, query, value, path=path), expected)
    _, seen = attend(query, query, value, observe=observations.Weights())
    assert torch.isfinite(seen).all()
    assert seen[0, 0, 1, 1] == 1.0  # only its own product is positive
    assert close(seen, weights)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("rubbish", [1e4, -1e4])
def test_case12_padding_content_does_not_matter(path: Any, rubbish: float) -> None:
    query, key, value = (torch.randn(2, 3, 5, 7, dtype=torch.float64) for _ in range(3))
    dirty_key, dirty_value = key.clone(), value.clone()
    dirty_key[0, :, 3:], dirty_value[0, :, 3:] = rubbish, rubbish
    mask = masks.lengths([3, 5])
    clean = attend(query, key, value, mask=mask, path=path)
    leaves = [dirty_key.requires_grad_(), dirty_value.requires_grad_()]
    dirty = attend(query, *leaves, mask=mask, path=path)
    assert torch.equal(clean, dirty)
    alone = attend(query[:1], key[:1, :, :3], value[:1, :, :3], path=path)
    assert close(clean[:1], alone)
    for grad in torch.autograd.grad(dirty.sum(), leaves):
        assert (grad[0, :, 3:] == 0).all()
        assert torch.isfinite(grad).all()


def test_padding_content_does_not_matter_to_additive_scores() -> None:
    score = scores.Additive(5, 3, 7, dtype=torch.float64)
    query, key, value = (torch.randn(2, 4, size, dtype=torch.float64) for size in (5, 3, 2))
    dirty = key.clone()
    dirty[0, 2:] = 1e4
    mask = masks.lengths([2, 4])
    clean = attend(query, key, value, score=score, mask=mask)
    assert torch.equal(clean, attend(query, dirty, value, score=score, mask=mask))
    dirty[0, 2:] = torch.nan
    prepared = score.prepare_key(dirty, visible=torch.arange(4) < torch.tensor([[2], [4]]))
    assert torch.equal(clean, attend(query, prepared, value, score=score, mask=mask))


@pytest.mark.parametrize("path", PATHS)
def test_dropout_keeps_the_right_share_and_the_mean(path: Any) -> None:
    N, M, p = 61, 67, 0.3
    query, key, value = torch.zeros(1, 2, N, 2), torch.zeros(1, 2, M, 2), torch.eye(M).expand(1, 2, M, M)
    context = attend(query, key, value, dropout=p, path=path)  # identity values: the applied weights
    kept = context != 0
    # 8174 draws: the share's standard deviation is sqrt(0.21 / 8174) = 0.005
    assert abs(kept.double().mean() - (1 - p)) < 0.025
    assert torch.allclose(context[kept], torch.tensor(1 / M / (1 - p)))


def test_paths_agree_for_the_same_dropped_weights() -> None:
    query, key = torch.randn(1, 2, 5, 3, dtype=torch.float64), torch.randn(1, 2, 7, 3, dtype=torch.float64)
    value = torch.eye(7, dtype=torch.float64).expand(1, 2, 7, 7)
    _, clean = attend(query, key, value, observe=observations.Weights())
    for path in PATHS:
        applied = attend(query, key, value, dropout=0.4, path=path)
        assert close(applied, torch.where(applied != 0, clean / 0.6, 0.0))


def test_case10_observed_weights_are_clean_under_dropout() -> None:
    query, value = torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    _, (seen, entropy) = attend(
        query, query, value, dropout=0.5, observe=(observations.Weights(), observations.Entropy())
    )
    _, plain = attend(query, query, value, observe=observations.Weights())
    assert torch.equal(seen, plain)
    assert entropy.shape == (2, 5)


def test_auto_picks_fused_where_it_can() -> None:
    query = torch.randn(1, 2, 5, 3)
    assert torch.equal(attend(query, query, query), attend(query, query, query, path="fused"))


def test_autocast_does_not_overflow() -> None:
    query = torch.full((2, 3, 64), 100.0)
    query[:, 1] = -100.0
    with torch.autocast("cpu", torch.float16):
        context, weights = attend(query, query, query, observe=observations.Weights())
    assert torch.isfinite(context).all()
    assert weights[0, 1].tolist() == [0.0, 1.0, 0.0]


def test_autocast_gives_its_type_on_every_path() -> None:
    query, key, value = torch.randn(2, 3, 5), torch.randn(2, 4, 5), torch.randn(2, 4, 7)
    expected, _ = loops(query, key, value, scaled_dot)
    with torch.autocast("cpu", torch.bfloat16):
        for path in PATHS:
            context = attend(query, key.bfloat16(), value, path=path)
            assert context.dtype == torch.bfloat16
            assert close(context, expected)
    # The reference rounds once, at the end: half a step of bfloat16, 2^-9 of the number.
    with torch.autocast("cpu", torch.bfloat16):
        context = attend(query, key, value, path="reference")
    assert torch.equal(context, expected.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert attend(query.double(), key.double(), value.double(), path="reference").dtype == torch.float64
