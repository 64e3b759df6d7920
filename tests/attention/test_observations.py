"""What is kept of the weights: edges, gradients, blocks and refusals."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import attend, masks, observations, scores
from headlights.attention import Observation
from headlights.attention._kept import top

INF = math.inf
SCORES = torch.tensor(
    [
        [0.0, -INF, -INF, -INF, -INF],  # one usable key
        [1.0, 1.0, 1.0, 1.0, -INF],  # uniform over four
        [2.0, 0.5, -INF, -INF, -INF],  # two usable keys
        [-INF, -INF, -INF, -INF, -INF],  # none
        [0.0, 3.0, 3.0, -1.0, 0.0],  # ties
        [0.0, 800.0, 0.0, 0.0, 0.0],  # the others underflow to 0
    ],
    dtype=torch.float64,
)


def observe(observation: Any, raw: Tensor = SCORES) -> Any:
    """Observe weights whose scores are given: a bias on scores of zero."""
    query, key = torch.zeros(raw.shape[-2], 2).double(), torch.zeros(raw.shape[-1], 2).double()
    return attend(query, key, key, mask=masks.bias(raw), observe=observation)[1]


def test_case13_entropy_in_nats_is_never_nan() -> None:
    expected = []
    for row in SCORES:
        usable = [float(s) for s in row if s > -INF]
        log_z = math.log(sum(math.exp(s - max(usable)) for s in usable)) + max(usable) if usable else 0.0
        expected.append(log_z - sum(math.exp(s - log_z) * s for s in usable))  # log Z - mean score
    entropy = observe(observations.Entropy())
    assert entropy.shape == (6,)
    assert torch.allclose(entropy, torch.tensor(expected, dtype=torch.float64), atol=1e-9)
    assert entropy[0] == 0
    assert entropy[3] == 0
    assert entropy[1].item() == pytest.approx(math.log(4), abs=1e-12)
    assert (entropy >= 0).all()


def test_case13_top_weights_are_sorted_and_unused_slots_marked() -> None:
    weights = observe(observations.Weights())
    top = observe(observations.TopWeights(3))
    for row in range(6):
        expected = sorted(weights[row].tolist(), reverse=True)[:3]
        assert top.values[row].tolist() == expected
        for value, index in zip(top.values[row], top.indices[row], strict=True):
            assert (index == -1) == (value == 0)
            assert index == -1 or weights[row, index] == value
    assert top.indices[0].tolist() == [0, -1, -1]
    assert sorted(top.indices[4, :2].tolist()) == [1, 2]


def test_top_weights_may_ask_for_more_than_there_are() -> None:
    top = observe(observations.TopWeights(7))
    assert top.values.shape == top.indices.shape == (6, 7)
    assert (top.values[:, 5:] == 0).all()
    assert (top.indices[:, 5:] == -1).all()
    empty = observe(observations.TopWeights(2), torch.zeros(3, 0).double())
    assert empty.indices.tolist() == [[-1, -1]] * 3


def test_mean_weights_average_the_heads() -> None:
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 4, 7)
    _, (mean, weights) = attend(query, key, key, observe=(observations.MeanWeights(), observations.Weights()))
    assert torch.allclose(mean, (weights[:, 0] + weights[:, 1] + weights[:, 2]) / 3)


def _largest(**options: Any) -> Observation:
    return _Largest(**options)


def _own(**options: Any) -> Observation:
    return _Own(**options)


@pytest.mark.parametrize(
    "kind",
    [
        observations.Weights,
        observations.MeanWeights,
        observations.Entropy,
        observations.Received,
        lambda **kw: observations.Rows([2, 0, 2], **kw),
        lambda **kw: observations.TopWeights(3, **kw),
        _largest,
        _own,
    ],
    ids=["Weights", "MeanWeights", "Entropy", "Received", "Rows", "TopWeights", "users_per_row", "users_own"],
)
@pytest.mark.parametrize("path", ["reference", "blocked"])
def test_differentiable_observations_carry_gradients(path: Any, kind: Any, small_blocks: None) -> None:
    query = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    key = torch.randn(1, 2, 5, 2, dtype=torch.float64, requires_grad=True)
    mask = masks.lengths([4]) & masks.hide(torch.tensor([[True], [False], [False]]))

    def seen(query: Tensor, key: Tensor) -> Any:
        result = attend(query, key, key, mask=mask, observe=kind(differentiable=True), path=path)[1]
        return result if isinstance(result, Tensor) else result[0]

    assert torch.autograd.gradcheck(seen, (query, key))
    detached = attend(query, key, key, mask=mask, observe=kind(), path=path)[1]
    assert not (detached if isinstance(detached, Tensor) else detached[0]).requires_grad


def test_entropy_gradient_is_finite_where_weights_underflow() -> None:
    raw = SCORES.clone().requires_grad_()
    (grad,) = torch.autograd.grad(observe(observations.Entropy(differentiable=True), raw).sum(), raw)
    assert torch.isfinite(grad).all()
    assert (grad[3] == 0).all()


@pytest.mark.parametrize(
    "observation",
    [
        observations.Weights(),
        observations.MeanWeights(),
        observations.Entropy(),
        observations.TopWeights(2),
        observations.Received(),
        observations.Rows([6, 0, 0, 3]),
    ],
    ids=repr,
)
def test_blocks_give_what_the_whole_gives(observation: Observation) -> None:
    weights = torch.softmax(torch.randn(2, 3, 7, 5), -1)
    whole = observation.start((2, 3, 7, 5))
    whole.update(slice(0, 7), weights)
    blocks = observation.start((2, 3, 7, 5))
    for start, stop in ((0, 2), (2, 3), (3, 7)):
        blocks.update(slice(start, stop), weights[..., start:stop, :])
    one, other = whole.result(), blocks.result()
    for left, right in zip(
        one if isinstance(one, tuple) else (one,),
        other if isinstance(other, tuple) else (other,),
        strict=True,
    ):
        assert torch.allclose(left, right, atol=0, rtol=1e-6)  # sums are rounded in another order


class _Largest(Observation):
    def start(self, shape: tuple[int, ...]) -> observations.Collector:
        return observations.PerRow(lambda weights: weights.amax(-1), row_dim=-1)


class _Own(Observation):
    """The sum over rows of the squared weights, by a collector that tells nothing of itself."""

    def start(self, shape: tuple[int, ...]) -> observations.Collector:
        return _Squares()


class _Squares(observations.Collector):
    def __init__(self) -> None:
        self.total: Any = 0.0

    def update(self, rows: slice, weights: Tensor) -> None:
        self.total = self.total + weights.square().sum(-2)

    def result(self) -> Any:
        return self.total


@pytest.mark.parametrize("path", ["reference", "blocked"])
def test_a_users_own_observation(path: Any, small_blocks: None) -> None:
    query, key = torch.randn(3, 5), torch.randn(4, 5)
    _, (own, largest, weights) = attend(
        query, key, key, observe=(_Own(), _Largest(), observations.Weights()), path=path
    )
    assert torch.allclose(own, weights.square().sum(-2))
    assert torch.equal(largest, weights.amax(-1))


@pytest.mark.parametrize("path", ["reference", "blocked"])
def test_received_and_rows(path: Any, small_blocks: None) -> None:
    query, key = torch.randn(2, 7, 5), torch.randn(2, 3, 5)
    asked = (
        observations.Received(),
        observations.Rows([6, 0, 3, 0]),
        observations.Rows(torch.tensor([], dtype=torch.long)),
        observations.Weights(),
    )
    _, (received, rows, none, weights) = attend(query, key, key, observe=asked, path=path)
    assert torch.allclose(received, sum((weights[:, i] for i in range(7)), torch.zeros(2, 3)))
    assert torch.equal(rows, torch.stack([weights[:, i] for i in (6, 0, 3, 0)], 1))
    assert none.shape == (2, 0, 3)
    empty = attend(query[:, :0], key, key, observe=asked[::2], path=path)[1]
    assert (empty[0] == 0).all()
    with pytest.raises(ValueError, match="Rows: there are 7 queries and no index 7"):
        attend(query, key, key, observe=observations.Rows([7]), path=path)
    with pytest.raises(ValueError, match="Rows: expected indices of 0 or more, got -1"):
        observations.Rows([0, -1])


def test_one_observation_gives_one_result_and_a_tuple_a_tuple() -> None:
    x = torch.randn(3, 2)
    assert isinstance(attend(x, x, x), Tensor)
    assert isinstance(attend(x, x, x, observe=observations.Weights())[1], Tensor)
    assert isinstance(attend(x, x, x, observe=(observations.Weights(),))[1], tuple)
    assert attend(x, x, x, observe=())[1] == ()


def test_refusals() -> None:
    x = torch.randn(3, 2)
    with pytest.raises(TypeError, match=r"observe: expected an observation such as .*Weights\(\).*got True"):
        attend(x, x, x, observe=True)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="TopWeights: k must be 1 or more, got 0"):
        observations.TopWeights(0)
    with pytest.raises(ValueError, match=r"MeanWeights: weights of shape \(3, 3\) have no head dimension"):
        attend(x, x, x, observe=observations.MeanWeights())
    with pytest.raises(
        ValueError, match="path: 'fused' cannot observe weights; use path='auto' or 'reference'"
    ):
        attend(x, x, x, observe=observations.Weights(), path="fused")
    assert repr(observations.TopWeights(2)) == "TopWeights(differentiable=False, k=2)"


def test_observing_never_changes_the_context() -> None:
    query, key = torch.randn(2, 3, 5), torch.randn(2, 4, 5)
    score = scores.Additive(5, 5, 3)
    plain = attend(query, key, key, score=score)
    assert torch.equal(plain, attend(query, key, key, score=score, observe=observations.Entropy())[0])


@pytest.mark.parametrize("m", [64 * 6, 64 * 7 + 13, 64 * 16 + 1, 95, 96, 100, 191, 192, 3])
@pytest.mark.parametrize("tied", [True, False])
def test_the_largest_are_found_among_the_groups_with_the_largest(m: int, tied: bool) -> None:
    weights = torch.randint(9, (3, 5, m)) / 8 if tied else torch.rand(3, 5, m)
    values, indices = top(weights, 3)
    assert torch.equal(values, weights.topk(3, -1).values)
    assert torch.equal(weights.gather(-1, indices), values)
    assert all(len(set(row.tolist())) == 3 for row in indices.reshape(-1, 3))  # none comes twice
    if not tied:
        assert torch.equal(indices, weights.topk(3, -1).indices)


def test_top_weights_of_long_rows_agree_between_paths() -> None:
    query, key = torch.randn(2, 3, 7, 5), torch.randn(2, 3, 1031, 5)
    found = [
        attend(query, key, key, observe=observations.TopWeights(4), path=p)[1]
        for p in ("reference", "blocked")
    ]
    assert torch.allclose(found[0].values, found[1].values, rtol=1e-5)
    assert torch.equal(found[0].indices, found[1].indices)
