"""A record's entries stacked by layer."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headlights import observations, observe, view

B, N, M, H, D = 2, 5, 7, 3, 4


class Layers(nn.Module):
    """Attention modules called in another order than they are listed, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _Attention(), _Attention()

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.first(self.second(self.first(x, memory), memory), memory)  # type: ignore[no-any-return]


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(D, D)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(self.query(x), memory, memory)


def _record(*wanted: observations.Observation) -> Any:
    x, memory = torch.randn(B, H, N, D), torch.randn(B, H, M, D)
    model = Layers()
    with torch.no_grad(), observe(model, wanted if len(wanted) > 1 else wanted[0]) as record:
        model(x, memory)
    return record


def test_layers_are_stacked_in_the_order_of_calls() -> None:
    record = _record(observations.Weights())
    (first, third), (second,) = record["first"], record["second"]
    for example in range(B):
        expected = [first[example], second[example], third[example]]
        assert torch.equal(record.stack(example=example), torch.stack(expected))
    assert torch.equal(record.stack(example=None), torch.stack([first, second, third]))
    assert record.stack().shape == (3, H, N, M)


def test_named_and_nested_results_keep_their_kind() -> None:
    top, entropy = _record(observations.TopWeights(2), observations.Entropy()).stack()
    assert top.values.shape == top.indices.shape == (3, H, N, 2)
    assert top.indices.dtype == torch.int64
    assert entropy.shape == (3, H, N)
    words = [str(number) for number in range(M)]
    assert view.html(top, words, words[:N]).text.startswith("<!DOCTYPE html>")


def test_modules_are_picked_by_name_and_glob() -> None:
    record = _record(observations.Weights())
    assert torch.equal(record.stack("second")[0], record["second"][0][0])
    assert record.stack("f*").shape == (2, H, N, M)
    assert torch.equal(record.stack(["second", "first"]), record.stack())  # the order is that of the calls


def test_a_module_with_two_names_is_found_under_both() -> None:
    model = nn.ModuleDict({"one": _Attention()})
    model["two"] = model["one"]
    memory = torch.randn(B, H, M, D)
    with torch.no_grad(), observe(model, observations.Weights()) as record:
        model["one"](memory, memory)
    assert torch.equal(record.stack("two"), record.stack("one"))


def test_what_does_not_stack_is_named() -> None:
    record = _record(observations.Weights())
    with pytest.raises(
        ValueError, match=r"modules: nothing was recorded under 'third', 'x\*'; Record\(calls: "
    ):
        record.stack(["third", "x*"])
    with pytest.raises(
        ValueError, match=r"example: expected 0 to 1 for entries of shape \(2, 3, 5, 7\), got 2"
    ):
        record.stack(example=2)
    model, memory = Layers(), torch.randn(B, H, M, D)
    with torch.no_grad(), observe(model, observations.Weights()) as record:
        model.first(memory[:, :, :N], memory)
        model.second(memory, memory)
    expected = (
        r"modules: 'first' and 'second' gave entries of shapes \(2, 3, 5, 7\) and \(2, 3, 7, 7\), which do "
        "not stack; pick modules or calls of one shape"
    )
    with pytest.raises(ValueError, match=expected):
        record.stack()
