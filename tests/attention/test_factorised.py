"""Additive scores by exponentials: accuracy at every scale, wide ranges, gradients."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from headlights import MultiHeadAttention, attend, masks, observations, scores
from headlights.attention import PreparedKey, _factorised
from headlights.attention._factorised import FactorisedKey, additive_scores, factorise
from tests.attention.additive_tools import exact, fresh, leaves, needs_compiler

EPS = 2.0**-23


@pytest.fixture(params=["blocks", pytest.param("compiled", marks=needs_compiler)])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[str]:
    """Run a test without the compiled kernels, in blocks that toy sizes fill, and with them."""
    loader = fresh(monkeypatch, cache)
    if request.param == "compiled":
        assert loader.bring() is not None
    else:
        loader._has_looked = loader._has_tried = True
        monkeypatch.setattr(_factorised, "CPU_BLOCK", 60)
    yield request.param
    assert (loader.kernels is not None) == (request.param == "compiled")


@pytest.mark.parametrize("scale", [1e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0, 10.0, 1e2, 1e3, 1e4])
@pytest.mark.parametrize("sign", ["one sign", "both signs"])
def test_scores_lie_within_four_eps_at_every_scale(scale: float, sign: str, kernels: str) -> None:
    query, key = scale * torch.randn(3, 5, 131), scale * torch.randn(3, 7, 131)
    b = torch.rand(131) if sign == "one sign" else torch.randn(131)
    got = additive_scores(query, factorise(PreparedKey(key), None), b)
    bound = 4 * EPS * float(b.abs().sum())
    assert (got.double() - exact(query, key, b)).abs().max() <= bound


@settings(max_examples=60, deadline=None)
@given(
    scales=st.tuples(*[st.floats(-4, 4)] * 2),
    middles=st.tuples(*[st.floats(-1e4, 1e4)] * 2),
    seed=st.integers(0, 2**20),
)
def test_scores_lie_within_four_eps_wherever_the_keys_lie(
    scales: tuple[float, float], middles: tuple[float, float], seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    query = middles[0] + 10 ** scales[0] * torch.randn(2, 3, 61, generator=random)
    key = middles[1] + 10 ** scales[1] * torch.randn(2, 5, 61, generator=random)
    # Half of the queries lie where their keys are met, so that the tanh is not at its end.
    query[0] = 10 ** scales[0] * torch.randn(3, 61, generator=random) - middles[1]
    b = torch.rand(61, generator=random)
    got = additive_scores(query, factorise(PreparedKey(key), None), b)
    # Beyond the range of the factors the sum query + key is rounded first, as in the textbook's form.
    textbook = torch.tanh(query[:, :, None] + key[:, None]) @ b
    right = exact(query, key, b)
    allowed = max(4 * EPS * float(b.sum()), 2 * float((textbook.double() - right).abs().max()))
    assert (got.double() - right).abs().max() <= allowed


@pytest.mark.parametrize(
    ("middle", "spread", "form"),
    [(0, 33, "plain"), (500, 33, "centred"), (-1e4, 10, "centred"), (0, 36, "tanh"), (500, 36, "tanh")],
)
def test_the_range_of_the_keys_decides_the_form(
    middle: float, spread: float, form: str, kernels: str
) -> None:
    key = middle + spread * (2 * torch.rand(2, 7, 5) - 1)
    key[:, 0], key[:, 1] = middle - spread, middle + spread
    query, b = torch.randn(2, 4, 5) - middle, torch.rand(5)
    prepared = factorise(PreparedKey(key), None)
    found = "tanh"
    if isinstance(prepared, FactorisedKey):
        found = "plain" if prepared.centre is None else "centred"
    assert found == form
    inputs = [query.requires_grad_(), key.requires_grad_(), b.requires_grad_()]
    got = additive_scores(query, type(prepared)(**{**vars(prepared), "key": key}), b)
    right = exact(*inputs)
    assert (got - right).abs().max() <= 4 * EPS * b.detach().sum()
    grad = torch.randn(2, 4, 7)
    for one, other in zip(
        torch.autograd.grad(got, inputs, grad), torch.autograd.grad(right, inputs, grad.double()), strict=True
    ):
        assert torch.allclose(one.double(), other.double(), atol=1e-5)


def test_centring_loses_no_digits(kernels: str) -> None:
    key = 66 * torch.rand(1, 401, 1)  # the middle is near 33, where float32 has steps of 4e-6
    query = 0.3 * torch.randn(1, 401, 1) - key  # each meets its key
    prepared = factorise(PreparedKey(key), None)
    assert isinstance(prepared, FactorisedKey)
    assert prepared.centre is not None
    got = additive_scores(query, prepared, torch.ones(1))
    assert (got.double() - exact(query, key, torch.ones(1))).abs().max() <= 4 * EPS


def test_queries_without_bound_stay_finite(kernels: str) -> None:
    near = [43.0, 43.7, 44.0, 44.4, 48.0, 51.0, 52.0]  # where e^(2q) loses its digits, or is infinite
    query = torch.tensor([-3e38, *(-each for each in near), 0.0, *near, 3e38, torch.inf]).unsqueeze(1)
    key = torch.tensor([[-34.0], [-20.0], [0.0], [20.0], [34.0]])
    got = additive_scores(query, factorise(PreparedKey(key), None), torch.ones(1))
    assert torch.allclose(got.double(), exact(query, key, torch.ones(1)), atol=4 * EPS, rtol=0)
    lost = additive_scores(query * torch.nan, factorise(PreparedKey(key), None), torch.ones(1))
    assert lost.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("M", [2, 3, 5])
def test_infinite_exponentials_saturate_and_leave_other_terms_alone(
    dtype: torch.dtype, M: int, kernels: str
) -> None:
    # Channels share divisions, 16 or 8 apart, the last have their own: some saturate, their partners do not.
    query = torch.randn(1, 3, 75, dtype=dtype)
    query[:, 1, ::3], query[:, 1, 1::3] = 3e38, -3e38
    query[:, 2, :20] = torch.inf
    key, b = 3 * torch.randn(1, M, 75, dtype=dtype), torch.randn(75, dtype=dtype)
    inputs = [query.requires_grad_(), key.requires_grad_(), b.requires_grad_()]
    got = additive_scores(query, factorise(PreparedKey(key), None), b)
    right = exact(*inputs)
    eps = torch.finfo(dtype).eps
    assert (got.double() - right).abs().max() <= 4 * eps * b.detach().abs().sum()
    grad = torch.randn(1, 3, M, dtype=dtype)
    pairs = zip(
        torch.autograd.grad(got, inputs, grad), torch.autograd.grad(right, inputs, grad.double()), strict=True
    )
    for one, other in pairs:
        assert torch.allclose(one.double(), other.double(), atol=64 * eps, rtol=64 * eps)


@pytest.mark.parametrize("middle", [0.0, 60.0])
def test_without_a_gradient_examples_go_a_few_at_a_time(
    middle: float, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = scores.Additive(3, 3, 7, bias=True)
    nn.init.constant_(score.get_parameter("bias"), middle)
    query, key = torch.randn(5, 2, 3), torch.randn(5, 4, 3)
    prepared = score.prepare_key(key)
    right = score(query, prepared)
    monkeypatch.setattr(_factorised, "QUERY_BLOCK", 2 * 2 * 7)  # two examples
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    with torch.no_grad():
        assert torch.equal(score(query, prepared), right)
        assert torch.equal(score(query[0], score.prepare_key(key)), score(query[:1], score.prepare_key(key)))
        assert score(query[:0], score.prepare_key(key[:0])).shape == (0, 2, 4)


def test_a_query_that_is_not_a_number_spoils_its_own_row_only(kernels: str) -> None:
    key, b = torch.randn(2, 5, 37), torch.randn(37)
    for channel in (0, 36):
        query = torch.randn(2, 3, 37)
        query[1, 2, channel] = torch.nan
        got = additive_scores(query, factorise(PreparedKey(key), None), b)
        assert got[1, 2].isnan().all()
        assert got.isnan().sum() == 5


@needs_compiler
def test_loading_the_kernels_leaves_denormals_alone(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    # Linked with -ffast-math, a library would switch its process to flush them to zero.
    assert fresh(monkeypatch, cache).bring() is not None
    assert torch.tensor(1e-38) / 8 != 0
    assert torch.full((1000,), 1e-38).div(8).ne(0).all()
    assert sys.float_info.min / 8 != 0


def test_inputs_are_kept_unless_they_may_be_overwritten(kernels: str) -> None:
    query, key, b = torch.randn(2, 3, 5), torch.randn(2, 4, 5), torch.randn(5)
    kept, prepared = query.clone(), factorise(PreparedKey(key), None)
    right = additive_scores(query, prepared, b)
    assert torch.equal(query, kept)
    asked = query.clone().requires_grad_()
    additive_scores(asked, prepared, b, may_overwrite=True)
    assert torch.equal(asked, kept)
    row = torch.randn(1, 3, 5)  # seen by both examples
    expanded = additive_scores(row.expand(2, 3, 5), prepared, b)
    assert torch.equal(additive_scores(row.expand(2, 3, 5), prepared, b, may_overwrite=True), expanded)
    assert torch.equal(additive_scores(query, prepared, b, may_overwrite=True), right)


@pytest.mark.parametrize("rubbish", [torch.inf, -torch.inf, torch.nan, -torch.nan])
@pytest.mark.parametrize("width", [3, 40])
@pytest.mark.usefixtures("kernels")
def test_hidden_keys_leave_the_gradients_of_queries_finite(rubbish: float, width: int) -> None:
    """Also NaN with its sign set, which is what a processor makes of inf - inf."""
    query = torch.randn(1, 4, width, requires_grad=True)
    key, b = torch.randn(1, 5, width), torch.rand(width)
    visible = torch.tensor([[True, True, True, False, False]])
    upstream = visible[:, None].expand(1, 4, 5).float()
    found: list[Tensor] = []
    for hidden in (0.0, rubbish):
        dirty = key.masked_fill(~visible[..., None], hidden)
        output = additive_scores(query, factorise(PreparedKey(dirty), visible), b)
        found += torch.autograd.grad(output, query, upstream)
    assert torch.allclose(found[0], found[1])


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, 1e30, -700.0])
@pytest.mark.parametrize("middle", [0.0, 300.0])
def test_padding_neither_moves_the_centre_nor_changes_the_form(rubbish: float, middle: float) -> None:
    score = scores.Additive(5, 5, 5, dtype=torch.float64)
    nn.init.eye_(score.W2)
    clean = middle + torch.randn(3, 4, 5, dtype=torch.float64)
    lengths = torch.tensor([2, 4, 0])
    visible = torch.arange(4) < lengths[:, None]
    dirty = clean.masked_fill(~visible[..., None], rubbish)
    query, value = torch.randn(3, 2, 5, dtype=torch.float64), torch.randn(3, 4, 2, dtype=torch.float64)
    results: list[tuple[Tensor, ...]] = []
    for key in (clean.clone().requires_grad_(), dirty.clone().requires_grad_()):
        prepared = score.prepare_key(key, visible=visible)
        assert isinstance(prepared, FactorisedKey)
        assert (prepared.centre is None) == (middle == 0)
        direct = attend(query, key, value, score=score, mask=masks.lengths(lengths))
        given = attend(query, prepared, value, score=score, mask=masks.lengths(lengths))
        assert torch.equal(direct, given)
        grads = torch.autograd.grad(direct.square().sum(), [key, *score.parameters()])
        centre = [] if prepared.centre is None else [prepared.centre]
        results.append((direct, prepared.exponentials, *centre, *grads))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_rows_and_selected_examples_take_everything_along() -> None:
    key = 100 + torch.randn(3, 6, 5, dtype=torch.float64)
    prepared = factorise(PreparedKey(key), None)
    query, b = torch.randn(3, 2, 5, dtype=torch.float64) - 100, torch.randn(5, dtype=torch.float64)
    whole = additive_scores(query, prepared, b)
    assert isinstance(prepared, FactorisedKey)
    assert prepared.centre is not None
    assert torch.allclose(additive_scores(query, prepared.rows(slice(2, 5)), b), whole[..., 2:5], atol=1e-12)
    assert additive_scores(query, prepared.rows(slice(2, 2)), b).shape == (3, 2, 0)
    indices = torch.tensor([2, 0, 0])
    chosen = additive_scores(query[indices], prepared.select(indices), b)
    assert torch.allclose(chosen, whole[indices], atol=1e-12)


@pytest.mark.parametrize("middle", [0.0, 60.0])
@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_gradcheck_through_everything(middle: float, spread: float, kernels: str) -> None:
    query, key, W1, W2, b, bias = leaves((2, 3, 4), (2, 5, 3), (4, 7), (3, 7), (7,), (7,))
    score = scores.Additive(4, 3, 7, bias=True, dtype=torch.float64)

    def run(query: Tensor, key: Tensor, W1: Tensor, W2: Tensor, b: Tensor, bias: Tensor) -> Tensor:
        parameters = {"W1": W1, "W2": spread * W2, "b": b, "bias": bias + middle}
        # With spread keys the queries meet them only where they are as large.
        call = (spread * query, key, key)
        result: Tensor = torch.func.functional_call(
            _Attend(score), {f"score.{k}": v for k, v in parameters.items()}, call
        )
        return result

    assert torch.autograd.gradcheck(run, (query, key, W1, W2, b, bias), atol=1e-4, rtol=1e-3)


class _Attend(nn.Module):
    def __init__(self, score: scores.Score, **options: Any) -> None:
        super().__init__()
        self.score, self.options = score, options

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=self.score, **self.options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (1, 5, 1, 3), (5, 1, 7, 2), (3, 2, 2, 1), (2, 11, 13, 17)], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_equal_the_textbooks_at_any_size(sizes: tuple[int, ...], dtype: Any, kernels: str) -> None:
    B, N, M, A = sizes
    inputs = leaves((B, N, A), (B, M, A), (A,), dtype=dtype)
    key = inputs[1]
    grad = torch.randn(B, N, M, dtype=dtype)
    prepared = factorise(PreparedKey(key), None)
    got = torch.autograd.grad(additive_scores(inputs[0], prepared, inputs[2]), inputs, grad)
    right = torch.autograd.grad(exact(*inputs), inputs, grad.double())
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for one, other in zip(got, right, strict=True):
        assert torch.allclose(one.double(), other.double(), atol=tolerance, rtol=tolerance)
    for chosen in itertools.combinations(range(3), 2):  # the others are not computed
        asked = [inputs[i] for i in chosen]
        some = torch.autograd.grad(additive_scores(inputs[0], prepared, inputs[2]), asked, grad)
        for i, one in zip(chosen, some, strict=True):
            assert torch.equal(one, got[i])


def test_leading_dimensions_broadcast(kernels: str) -> None:
    b = torch.randn(3, dtype=torch.float64)
    for left, right in [((), ()), ((2,), ()), ((), (2,)), ((2, 1), (5,)), ((2, 5), (2, 5))]:
        query, key = torch.randn(*left, 4, 3).double(), torch.randn(*right, 7, 3).double()
        got = additive_scores(query, factorise(PreparedKey(key), None), b)
        assert torch.allclose(got, exact(query, key, b), atol=1e-12)
        assert got.shape == exact(query, key, b).shape
    strided = torch.randn(4, 3, 2).double().permute(2, 0, 1)
    got = additive_scores(strided, factorise(PreparedKey(strided), None), b)
    assert torch.allclose(got, exact(strided, strided, b), atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype: torch.dtype, kernels: str) -> None:
    query, key, b = torch.randn(2, 3, 61, dtype=dtype), torch.randn(2, 5, 61, dtype=dtype), torch.rand(61)
    got = additive_scores(query, factorise(PreparedKey(key), None), b.to(dtype))
    assert got.dtype == torch.float32
    assert (got - exact(query, key, b.to(dtype))).abs().max() <= 4 * EPS * float(b.sum())
    score = scores.Additive(5, 5, 3, dtype=dtype)
    x = torch.randn(2, 4, 5, dtype=dtype, requires_grad=True)
    torch.autograd.backward(attend(x, x, x, score=score).float().sum())
    assert score.b.grad is not None
    assert score.b.grad.dtype == dtype


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, in forward mode
def test_second_derivatives_and_forward_mode_take_the_tanh() -> None:
    query, key, b = leaves((2, 3, 5), (2, 4, 5), (5,))

    def run(query: Tensor, key: Tensor, b: Tensor) -> Tensor:
        return additive_scores(query, factorise(PreparedKey(key), None), b)

    assert isinstance(factorise(PreparedKey(key), None), FactorisedKey)
    assert torch.autograd.gradgradcheck(run, (query, key, b))
    prepared = factorise(PreparedKey(key.detach()), None)  # outside, so that it has its exponentials
    tangent = torch.randn_like(query)
    with torch.no_grad():
        plain = query.detach()
        got = torch.func.jvp(lambda q: additive_scores(q, prepared, b), (plain,), (tangent,))[1]
        right = torch.func.jvp(lambda q: exact(q, key, b), (plain,), (tangent,))[1]
    assert torch.allclose(got, right, atol=1e-12)
    many = torch.func.vmap(lambda q, k: additive_scores(q, factorise(PreparedKey(k), None), b))(query, key)
    assert torch.allclose(many, exact(query, key, b), atol=1e-12)
    grads = torch.autograd.grad(
        run(query, key, b), query, torch.eye(24).double().view(24, 2, 3, 4), is_grads_batched=True
    )
    jacobian = torch.autograd.functional.jacobian(lambda q: exact(q, key, b), query)  # type: ignore[no-untyped-call]
    assert torch.allclose(grads[0].view(2, 3, 4, 2, 3, 5), jacobian, atol=1e-12)


def test_keys_prepared_outside_serve_compiled_calls() -> None:
    score = scores.Additive(5, 5, 3).requires_grad_(False)
    query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    prepared = score.prepare_key(key)
    traced = torch.compile(lambda q: score(q, prepared), backend="eager", fullgraph=True)
    assert torch.allclose(traced(query), score(query, prepared), atol=1e-6)


@pytest.mark.parametrize("path", ["reference", "blocked"])
def test_paths_hand_gradients_to_every_parameter_and_a_learned_bias(path: Any, small_blocks: None) -> None:
    score = scores.Additive(5, 5, 3, bias=True, dtype=torch.float64)
    assert score.bias is not None
    query, key, added = leaves((2, 5, 5), (2, 7, 5), (5, 7))
    wanted = [query, key, added, *score.parameters()]

    def run(path: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        mask = masks.bias(added) & masks.causal() & masks.lengths([7, 4])
        out = attend(query, key, key, score=score, mask=mask, path=path)
        return out, torch.autograd.grad(out.square().sum(), wanted)

    inside = (query @ score.W1)[:, :, None] + (key @ score.W2 + score.bias)[:, None]
    raw = torch.tanh(inside) @ score.b + added
    seen = (torch.arange(7) <= torch.arange(5)[:, None] + 2) & (
        torch.arange(7) < torch.tensor([[[7]], [[4]]])
    )
    right = raw.masked_fill(~seen, -torch.inf).softmax(-1) @ key
    out, grads = run(path)
    assert torch.allclose(out, right, atol=1e-12)
    for one, other in zip(grads, torch.autograd.grad(right.square().sum(), wanted), strict=True):
        assert torch.allclose(one, other, atol=1e-11)


def test_multi_head_attention_takes_them(kernels: str) -> None:
    module = MultiHeadAttention(12, 3, batch_first=True, score=scores.Additive(4, 4, 5), dtype=torch.float32)
    x = torch.randn(2, 7, 12)
    padding = torch.arange(7) >= torch.tensor([[7], [4]])
    output, weights = module(x, x, x, key_padding_mask=padding)
    dirty = x.masked_fill(padding[..., None], 1e3)
    again, same = module(x, dirty, dirty, key_padding_mask=padding)
    assert torch.allclose(output, again, atol=1e-6)
    assert torch.allclose(weights, same, atol=1e-6)


def test_nothing_as_large_as_all_pairs_is_held() -> None:
    class Largest(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[no-untyped-call]
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else [result]:
                if isinstance(tensor, Tensor):
                    self.size = max(self.size, tensor.untyped_storage().nbytes() // tensor.element_size())
            return result

    B, N, M, A = 2, 128, 128, 64
    for scale in (1.0, 1000.0):  # by exponentials and by tanh
        query, key, b = leaves((B, N, A), (B, M, A), (A,), dtype=torch.float32)
        with Largest() as largest:  # type: ignore[no-untyped-call]
            prepared = factorise(PreparedKey(scale * key), None)
            torch.autograd.backward(additive_scores(query, prepared, b).sum())
        assert isinstance(prepared, FactorisedKey) == (scale == 1.0)
        assert largest.size <= _factorised.CPU_BLOCK < B * N * M * A


def test_watchers_see_additive_scores(small_blocks: None) -> None:
    score = scores.Additive(5, 5, 3)
    x = torch.randn(2, 4, 5)
    weights = attend(x, x, x, score=score, observe=observations.Weights())[1]
    hidden = torch.tanh((x @ score.W1)[:, :, None] + (x @ score.W2)[:, None])
    assert torch.allclose(weights, (hidden @ score.b).softmax(-1), atol=1e-6)
