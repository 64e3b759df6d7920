"""Watching what is built on this library: `attend` with any score, and `MultiHeadAttention`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import MultiHeadAttention, attend, masks, observations, observe, scores
from headlights.attention import PreparedKey, Score
from headlights.watch import _weights
from tests.watch.oracle import Calls, close, loop_weights

WEIGHTS = observations.Weights()
ATTEND = Calls(attend)


def _inputs(*leading: int, N: int = 3, M: int = 5, D: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((*leading, N, D), (*leading, M, D), (*leading, M, 7))
    query, key, value = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return query, key, value


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 1, 3)], ids=str)
def test_attend_keeps_the_shape_of_its_own_weights(leading: tuple[int, ...]) -> None:
    query, key, value = _inputs(*leading)
    call: dict[str, Any] = {"mask": masks.causal(), "score": scores.Dot(0.3), "dropout": 0.5}
    torch.manual_seed(3)
    expected = attend(query, key, value, **call)
    torch.manual_seed(3)
    with observe(ATTEND, WEIGHTS) as record:
        context = ATTEND(query, key, value, **call)
    assert torch.equal(context, expected)
    visible = torch.tensor([[j <= i + 2 for j in range(5)] for i in range(3)])
    assert close(record[""][0], loop_weights(query, key, scale=0.3, visible=visible))


def _with_bias(query: Tensor, key: Tensor) -> Tensor:
    """A score that must see all queries at once."""
    return query @ key.mT + torch.arange(15.0, dtype=torch.float64).reshape(3, 5)


SCORES: dict[str, Callable[[], Any]] = {
    "default": lambda: None,
    "learned": lambda: scores.Dot(0.7, learned=True),
    "bilinear": lambda: scores.Bilinear(2, 2, dtype=torch.float64),
    "additive": lambda: scores.Additive(2, 2, 5, dtype=torch.float64),
    "callable": lambda: _with_bias,
}


@pytest.mark.parametrize("name", SCORES)
def test_every_score(name: str) -> None:
    query, key, value = _inputs(2, 3)
    call: dict[str, Any] = {"score": SCORES[name](), "mask": masks.lengths([4, 0])}  # the second has no key
    expected, weights = attend(query, key, value, observe=WEIGHTS, **call)
    with observe(ATTEND, (WEIGHTS, observations.Entropy())) as record:
        assert torch.equal(ATTEND(query, key, value, **call), attend(query, key, value, **call))
        context, seen = ATTEND(query, key, value, observe=WEIGHTS, **call)
    assert torch.equal(context, expected)
    assert torch.equal(seen, weights)
    assert len(record[""]) == 2
    for recorded, entropy in record[""]:
        assert close(recorded, weights.detach())
        assert recorded[1].eq(0).all()
        assert entropy.shape == (2, 3, 3)


class Distance(Score):
    """Minus the distance between the positions of query and key."""

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:
        first = prepared.start + prepared.length - query.shape[-2] if start is None else start
        queries = first + torch.arange(query.shape[-2], dtype=torch.float64)
        keys = prepared.start + torch.arange(prepared.length, dtype=torch.float64)
        return -(queries[:, None] - keys).abs().expand(*query.shape[:-1], -1)


@pytest.mark.parametrize("name", ["positions", "callable"])
def test_blocks_of_rows_know_their_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "BLOCK_WEIGHTS", 10)  # one row of 2 * 5 weights
    query, key, value = _inputs(2)
    score = Distance() if name == "positions" else _with_bias
    for keys in (key, PreparedKey(key, start=7)) if isinstance(score, Score) else (key,):
        _, weights = attend(query, keys, value, score=score, observe=WEIGHTS)
        with observe(ATTEND, WEIGHTS) as record:
            ATTEND(query, keys, value, score=score)
        assert close(record[""][0], weights)


def test_prepared_keys_are_taken_as_they_are() -> None:
    query, key, value = _inputs(2)
    score = scores.Additive(2, 2, 5, dtype=torch.float64)
    prepared = score.prepare_key(key)
    _, weights = attend(query, prepared, value, score=score, observe=WEIGHTS)
    with observe(ATTEND, WEIGHTS) as record:
        ATTEND(query, prepared, value, score=score)
    assert close(record[""][0], weights.detach())


def test_a_random_score_leaves_the_random_state_alone() -> None:
    query, key, value = _inputs(2)

    def noisy(query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT + torch.rand(3, 5)

    torch.manual_seed(3)
    expected, after = ATTEND(query, key, value, score=noisy), torch.rand(2)
    torch.manual_seed(3)
    with observe(ATTEND, WEIGHTS):
        context = ATTEND(query, key, value, score=noisy)
    assert torch.equal(context, expected)
    assert torch.equal(torch.rand(2), after)


def test_hooks_on_a_score_are_called_once() -> None:
    query, key, value = _inputs(2)
    score = scores.Bilinear(2, 2, dtype=torch.float64)
    calls: list[nn.Module] = []
    score.register_forward_hook(lambda module, args, output: calls.append(module))
    with observe(ATTEND, WEIGHTS):
        ATTEND(query, key, value, score=score)
    assert calls == [score]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "no_weights"])
@pytest.mark.parametrize(
    "options", [{}, {"num_kv_heads": 2}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str
)
def test_multi_head_attention(options: dict[str, Any], need_weights: bool, training: bool) -> None:
    module = MultiHeadAttention(12, 4, 0.3, batch_first=True, **options).train(training)
    x = torch.randn(2, 5, 12)
    call: dict[str, Any] = {"need_weights": need_weights, "mask": masks.lengths([5, 3])}
    torch.manual_seed(3)
    expected = module(x, x, x, **call)
    torch.manual_seed(3)
    with observe(module, WEIGHTS) as record:
        output = module(x, x, x, **call)
    assert torch.equal(output[0], expected[0])
    *_, weights = module.eval()(x, x, x, **call, observe=WEIGHTS)
    assert len(record[""]) == 1
    assert close(record[""][0], weights.detach())


def test_nested_watchers_of_our_own_modules() -> None:
    module = MultiHeadAttention(12, 4, batch_first=True)
    x = torch.randn(2, 5, 12)
    with observe(module, WEIGHTS) as outer, observe(module, WEIGHTS) as inner:
        module(x, x, x)
    assert len(outer[""]) == len(inner[""]) == 1
    assert torch.equal(outer[""][0], inner[""][0])
