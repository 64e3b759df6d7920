"""`attend` inside torch's machinery: compile, export, func, fake and meta tensors, copies."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import attend, masks, observations, scores
from tests.attention.oracle import close

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch itself, while tracing


class Block(nn.Module):
    """Everything that may be traced in one place."""

    def __init__(self) -> None:
        super().__init__()
        self.additive = scores.Additive(6, 6, 5)
        self.rotary = scores.Rotary(scores.ScaledDot())

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mask = masks.lengths(lengths) & masks.causal()
        context, (entropy, received) = attend(
            x, x, x, score=self.additive, mask=mask, observe=(observations.Entropy(), observations.Received())
        )
        near = attend(x, x, x, score=self.rotary, mask=masks.window(2, 0))
        return context + near + attend(x, x, x, mask=mask), entropy, received


def test_compiles_in_one_graph() -> None:
    block = Block()
    x, lengths = torch.randn(2, 5, 6), torch.tensor([3, 0])
    compiled = torch.compile(block, fullgraph=True, backend="eager", dynamic=True)
    for got, right in zip(compiled(x, lengths), block(x, lengths), strict=True):
        assert close(got, right.double())


def test_exports_with_free_batch_and_length() -> None:
    block = Block().eval()
    batch, length = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(
        block,
        (torch.randn(3, 5, 6), torch.tensor([3, 0, 5])),
        dynamic_shapes={"x": {0: batch, 1: length}, "lengths": {0: batch}},
    )
    x, lengths = torch.randn(4, 11, 6), torch.tensor([11, 3, 0, 7])
    for got, right in zip(program.module()(x, lengths), block(x, lengths), strict=True):
        assert close(got, right.double())


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's kernel has no batching rule
@pytest.mark.parametrize("path", ["auto", "reference", "fused"])
def test_vmap_and_grad_equal_the_batch(path: Any) -> None:
    query, key, value = torch.randn(3, 2, 5), torch.randn(3, 7, 5), torch.randn(3, 7, 5)

    def one(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, mask=masks.causal() & masks.lengths(5), path=path)

    whole = attend(query, key, value, mask=masks.causal() & masks.lengths([5, 5, 5]))
    assert close(torch.func.vmap(one)(query, key, value), whole.double())
    grads = torch.func.vmap(torch.func.grad(lambda *leaves: one(*leaves).square().sum(), argnums=(0, 1, 2)))(
        query, key, value
    )
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    loss = attend(*leaves, mask=masks.causal() & masks.lengths([5, 5, 5])).square().sum()
    for got, right in zip(grads, torch.autograd.grad(loss, leaves), strict=True):
        assert close(got, right.double())


def test_forward_mode_of_the_reference_equals_differences() -> None:
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    tangent = torch.randn_like(x)

    def run(x: Tensor) -> Tensor:
        return attend(x, x, x, mask=masks.lengths([4, 0]), path="reference")

    derivative = torch.func.jvp(run, (x,), (tangent,))[1]
    step = 1e-6
    assert torch.allclose(
        derivative, (run(x + step * tangent) - run(x - step * tangent)) / (2 * step), atol=1e-8
    )


@pytest.mark.parametrize("score", [None, scores.Dot(), scores.Bilinear(7, 7, device="meta")], ids=str)
def test_meta_tensors_are_served(score: Any) -> None:
    query = torch.randn(2, 3, 5, 7, device="meta")
    assert attend(query, query, query, score=score, mask=masks.causal()).shape == (2, 3, 5, 7)
    huge = torch.empty(2, 3, 5000, 7, device="meta")  # large enough for blocks, were there values
    context, top = attend(
        huge, huge, huge, score=score, mask=masks.window(3, 3), observe=observations.TopWeights(2)
    )
    assert context.shape == huge.shape
    assert top.indices.shape == (2, 3, 5000, 2)


def test_fake_tensors_are_served() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.randn(2, 3, 5, 7)
        mask = masks.bias(torch.zeros(5, 5)) & masks.causal() & masks.lengths(torch.tensor([1, 2]))
        for score in (scores.Dot(), scores.Rotary(scores.Dot()), scores.Additive(7, 7, 3)):
            wide = fake if not isinstance(score, scores.Rotary) else torch.randn(2, 3, 5, 8)
            assert attend(wide, wide, wide, mask=mask, score=score).shape == wide.shape


def test_scores_masks_and_prepared_keys_copy() -> None:
    x = torch.randn(2, 5, 6)
    score = scores.Rotary(scores.Additive(6, 6, 3))
    mask = masks.lengths([3, 5]) & masks.keep(torch.rand(5, 5) > 0.3)
    observation = observations.TopWeights(2)
    twin, twin_mask, twin_observation = copy.deepcopy((score, mask, observation))
    prepared = copy.deepcopy(score).prepare_key(x)
    right, top = attend(x, x, x, score=score, mask=mask, observe=observation)
    got, twin_top = attend(x, prepared, x, score=twin, mask=twin_mask, observe=twin_observation)
    assert torch.equal(got, right)
    assert torch.equal(twin_top.indices, top.indices)
