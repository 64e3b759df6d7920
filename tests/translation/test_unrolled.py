"""Maps over many steps against torch's cells and against the same map at once."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headlights.translation.unrolled import Linear, Repeated, gru_cell, lstm_cell, once, repeated
from tests.attention.oracle import close

B, E_IN, E, T = 3, 4, 5, 6

both_ways = pytest.mark.parametrize("linear", [once, repeated])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def over_steps(
    linear: Callable[[Tensor, Tensor | None], Linear], x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Something that each step takes from the step before, so that gradients come step by step."""
    apply, state = linear(weight, bias), torch.zeros(B, E, dtype=x.dtype)
    for inputs in x.unbind(1):
        state = torch.tanh(apply(torch.cat([inputs, state], -1)))
    return state


@pytest.mark.parametrize("with_bias", [True, False])
def test_gradients_are_those_of_step_after_step(with_bias: bool) -> None:
    x, weight = drawn(B, T, E_IN), drawn(E, E_IN + E)
    bias = drawn(E) if with_bias else None
    parameters = [x, weight] if bias is None else [x, weight, bias]
    found, expected = (over_steps(linear, x, weight, bias) for linear in (repeated, once))
    assert torch.equal(found, expected)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(each, parameters, upstream) for each in (found, expected))
    assert all(close(one, other) for one, other in zip(ours, theirs, strict=True))


def test_a_second_way_back_counts_nothing_twice() -> None:
    x, weight = drawn(B, T, E_IN), drawn(E, E_IN + E)
    found = over_steps(repeated, x, weight, None)
    torch.autograd.backward(found.sum(), retain_graph=True)
    assert weight.grad is not None
    first = weight.grad.clone()
    torch.autograd.grad(found.sum(), [x], retain_graph=True)  # stops before the weight
    torch.autograd.backward(found.sum())
    assert torch.equal(weight.grad, 2 * first)


def test_steps_without_a_gradient_count_nothing() -> None:
    weight = drawn(E, E_IN)
    apply = repeated(weight, None)
    rows = [drawn(B, E_IN) for _ in range(3)]
    results = [apply(each) for each in rows]
    torch.autograd.backward(results[1].sum())
    assert weight.grad is not None
    assert close(weight.grad, rows[1].sum(0).expand(E, E_IN))


def test_a_product_of_each_example_its_own_matrix() -> None:
    x, matrices = drawn(T, B, 2, E_IN), drawn(B, E_IN, E)

    def run(product: Callable[[Tensor], Tensor]) -> Tensor:
        state = torch.zeros(B, 2, E, dtype=x.dtype)
        for inputs in x:
            state = torch.tanh(product(inputs * state.mean(-1, keepdim=True).exp()))
        return state

    found, expected = run(Repeated(matrices)), run(lambda inputs: inputs @ matrices)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(each, [x, matrices], upstream) for each in (found, expected))
    assert all(close(one, other) for one, other in zip(ours, theirs, strict=True))


def test_autocast_makes_the_weight_short_once() -> None:
    weight, x = torch.randn(E, E_IN).requires_grad_(), torch.randn(B, E_IN).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        apply = repeated(weight, None)
        found = apply(x)
        expected = F.linear(x, weight)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, expected)
    torch.autograd.backward(found.float().square().sum())
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    exact = 2 * (x @ weight.T).T @ x
    assert torch.allclose(weight.grad, exact, rtol=0.05, atol=0.05)


def cells(
    kind: type[nn.GRUCell] | type[nn.LSTMCell], linear: Callable[[Tensor, Tensor | None], Linear]
) -> tuple[nn.GRUCell | nn.LSTMCell, Linear, Linear]:
    module = kind(E_IN, E, dtype=torch.float64)
    assert module.bias_ih is not None
    return module, linear(module.weight_ih, module.bias_ih), linear(module.weight_hh, module.bias_hh)


@both_ways
def test_gru_is_torchs(linear: Callable[[Tensor, Tensor | None], Linear]) -> None:
    module, read, keep = cells(nn.GRUCell, linear)
    x, state = drawn(B, E_IN), drawn(B, E)
    found, expected = gru_cell(x, state, read, keep), module(x, state)
    assert close(found, expected)
    everything, upstream = [x, state, *module.parameters()], torch.randn_like(found)
    ours, theirs = (torch.autograd.grad(each, everything, upstream) for each in (found, expected))
    assert all(close(one, other) for one, other in zip(ours, theirs, strict=True))


@both_ways
def test_lstm_is_torchs(linear: Callable[[Tensor, Tensor | None], Linear]) -> None:
    module, read, keep = cells(nn.LSTMCell, linear)
    x, state, cell = drawn(B, E_IN), drawn(B, E), drawn(B, E)
    found, expected = lstm_cell(x, state, cell, read, keep), module(x, (state, cell))
    assert all(close(one, other) for one, other in zip(found, expected, strict=True))
    everything = [x, state, cell, *module.parameters()]
    ours, theirs = (
        torch.autograd.grad(one.sin().sum() + two.sum(), everything) for one, two in (found, expected)
    )
    assert all(close(one, other) for one, other in zip(ours, theirs, strict=True))
