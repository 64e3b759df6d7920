"""`AssociativeMemory`: source A's reading of attention as a memory of key-value pairs."""

import math

import pytest
import torch

from headlights import AssociativeMemory, scores


def test_s40_a_query_along_one_key_brings_back_its_value() -> None:
    keys = torch.tensor([[5.0, 0, 0, 0], [-5, 5, 0, 0], [-5, 0, 5, 0]]).double() * 2
    values = torch.randn(3, 7, dtype=torch.float64)
    memory = AssociativeMemory().write(keys, values)
    # scores q.k / sqrt 4: 50 for its own key, -50 for the others
    assert (memory.read(keys[0]) - values[0]).abs().max() < 1e-6
    assert memory.nearest(keys[0]) == 0


def test_s40_write_and_read_one_by_one_or_many_at_once() -> None:
    keys, values = 9 * torch.eye(5), torch.randn(5, 2)
    many, one_by_one = AssociativeMemory().write(keys, values), AssociativeMemory()
    for key, value in zip(keys, values, strict=True):
        one_by_one.write(key, value)
    assert many.length == one_by_one.length == 5
    assert torch.equal(many.read(keys), one_by_one.read(keys))
    assert (many.read(keys) - values).abs().max() < 1e-6
    keys.zero_()
    assert many.nearest(torch.eye(5)).tolist() == [0, 1, 2, 3, 4]


def test_s41_without_an_exact_match_the_nearest_keys_dominate() -> None:
    keys, values = torch.randn(7, 3).double(), torch.randn(7, 2).double()
    memory = AssociativeMemory(score=scores.Dot(2.0)).write(keys, values)
    query = torch.randn(3).double()
    parts = [math.exp(2 * float(query @ key)) for key in keys]
    assert (
        memory.read(query) - sum(p * v for p, v in zip(parts, values, strict=True)) / sum(parts)
    ).abs().max() < 1e-12
    assert memory.nearest(query) == max(range(7), key=lambda i: parts[i])
    low, high = values.min(0).values, values.max(0).values
    assert bool(((memory.read(query) >= low) & (memory.read(query) <= high)).all())  # within the hull


def test_s42_one_query_two_numbers_three_keys() -> None:
    memory = AssociativeMemory().write(torch.tensor([[1.0, 0], [0, 1], [1, 1]]), torch.eye(3))
    e = [math.exp(x / math.sqrt(2)) for x in (1.0, 2.0, 3.0)]  # q = (1, 2): q k_0 = 1, q k_1 = 2, q k_2 = 3
    expected = torch.tensor([x / sum(e) for x in e])
    assert (memory.read(torch.tensor([1.0, 2.0])) - expected).abs().max() < 1e-6


def test_queries_of_any_shape_are_answered() -> None:
    memory = AssociativeMemory().write(torch.randn(5, 3), torch.randn(5, 2))
    assert memory.read(torch.randn(7, 2, 3)).shape == (7, 2, 2)
    assert memory.nearest(torch.randn(7, 2, 3)).shape == (7, 2)
    assert memory.read(torch.randn(0, 3)).shape == (0, 2)


def test_gradients_reach_what_was_written() -> None:
    key, value = torch.randn(5, 3, requires_grad=True), torch.randn(5, 2, requires_grad=True)
    AssociativeMemory().write(key, value).read(torch.randn(3)).sum().backward()  # type: ignore[no-untyped-call]
    assert key.grad is not None
    assert value.grad is not None


def test_misuse_is_refused() -> None:
    memory = AssociativeMemory()
    with pytest.raises(ValueError, match="memory: nothing is stored; write pairs before reading"):
        memory.read(torch.zeros(3))
    with pytest.raises(ValueError, match=r"write: expected key \(E,\) .*, got \(2, 3\) and \(3, 3\)"):
        memory.write(torch.zeros(2, 3), torch.zeros(3, 3))
    memory.write(torch.zeros(2, 3), torch.zeros(2, 5))
    with pytest.raises(
        ValueError, match=r"write: expected widths \(E, E_v\) = \(3, 5\) as stored, got \(3, 4\)"
    ):
        memory.write(torch.zeros(2, 3), torch.zeros(2, 4))
