"""Half precision on a processor while training: short sentences are computed in float32 and rounded once."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from headlights import attend, masks
from headlights.attention._crossovers import WIDE_KEYS

HALF = [torch.bfloat16, torch.float16]


def make(dtype: torch.dtype, keys: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(keys)
    shapes = ((2, 3, 5, 4), (2, 3, keys, 4), (2, 3, keys, 4))
    query, key, value = (torch.randn(shape).to(dtype).requires_grad_() for shape in shapes)
    return query, key, value


def kernel(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, bias)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_the_result_is_that_of_float32_rounded_once(dtype: torch.dtype) -> None:
    inputs = make(dtype)
    wide = tuple(each.detach().double().requires_grad_() for each in inputs)
    bias = torch.randn(5, 7, dtype=dtype)
    found = attend(*inputs, mask=masks.bias(bias), path="fused")
    expected = kernel(wide[0], wide[1], wide[2], bias.double())
    assert found.dtype == dtype
    # Rounding once: half a step, eps / 2 of the number; its half again for float32 on the way.
    torch.testing.assert_close(found.double(), expected, rtol=0.75 * torch.finfo(dtype).eps, atol=1e-6)
    found.float().sin().sum().backward()  # type: ignore[no-untyped-call]
    expected.sin().sum().backward()  # type: ignore[no-untyped-call]
    for short, long in zip(inputs, wide, strict=True):
        assert short.grad is not None
        assert long.grad is not None
        assert short.grad.dtype == dtype
        torch.testing.assert_close(short.grad.double(), long.grad, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_long_sentences_and_those_without_gradient_go_to_the_kernel_as_they_are(dtype: torch.dtype) -> None:
    long = make(dtype, WIDE_KEYS + 1)
    assert torch.equal(attend(*long, path="fused"), kernel(*long))
    short = make(dtype)
    with torch.no_grad():
        assert torch.equal(attend(*short, path="fused"), kernel(*short))


def test_autocast_rounds_what_it_gives_and_leaves_float64_alone() -> None:
    inputs = make(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*inputs, path="fused")
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, kernel(*inputs).bfloat16())
    exact = [each.detach().double().requires_grad_() for each in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*exact, path="fused")
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, kernel(*exact))
