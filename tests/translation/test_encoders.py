"""The recurrent encoder: both directions, layers, and padding that has no influence."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headlights.translation.encoders import Cell, RecurrentEncoder
from tests.attention.oracle import close
from tests.translation.oracle import encode

SENTENCES = [[3, 1, 4, 1, 5], [9], [2, 6, 5]]
LENGTHS = torch.tensor([5, 1, 3])

cells = pytest.mark.parametrize("cell", ["gru", "lstm"])
depths = pytest.mark.parametrize("layers", [1, 2, 3])


def make(cell: Cell = "gru", **options: Any) -> RecurrentEncoder:
    return RecurrentEncoder(11, 5, 3, cell=cell, **options).double().eval()


def padded(sentences: list[list[int]] = SENTENCES, *, width: int = 5, filler: int = 0) -> Tensor:
    return torch.tensor([ids + [filler] * (width - len(ids)) for ids in sentences])


@cells
@depths
def test_s18_a_padded_batch_equals_the_formula_one_by_one(cell: Cell, layers: int) -> None:
    encoder = make(cell, layers=layers)
    memory = encoder(padded(), LENGTHS)
    assert memory.states.shape == (3, 5, encoder.output_dim) == (3, 5, 6)  # S18: twice the width
    for row, ids in enumerate(SENTENCES):
        states, final = encode(encoder, ids)
        assert close(memory.states[row, : len(ids)], states)
        assert (memory.states[row, len(ids) :] == 0).all()
        assert close(memory.final[row], final)


@cells
@depths
def test_s18_reversing_the_source_swaps_the_two_halves(cell: Cell, layers: int) -> None:
    encoder, mirror = make(cell, layers=layers), make(cell, layers=layers)
    mirror.embedding.load_state_dict(encoder.embedding.state_dict())
    with torch.no_grad():
        for name, parameter in encoder.recurrent.named_parameters():
            other = name.removesuffix("_reverse") if name.endswith("_reverse") else f"{name}_reverse"
            if name.startswith("weight_ih") and "_l0" not in name:  # reads both halves of the layer below
                mirror.recurrent.get_parameter(other).copy_(parameter.roll(3, dims=1))
            else:
                mirror.recurrent.get_parameter(other).copy_(parameter)
    there = encoder(padded(), LENGTHS)
    back = mirror(padded([ids[::-1] for ids in SENTENCES]), LENGTHS)
    for row, ids in enumerate(SENTENCES):
        swapped = there.states[row, : len(ids)].flip(0).roll(3, dims=1)
        assert close(back.states[row, : len(ids)], swapped)
    assert close(back.final, there.final.roll(3, dims=1))


@cells
@depths
def test_s18_padding_has_no_influence_at_all(cell: Cell, layers: int) -> None:
    encoder = make(cell, layers=layers)
    memory = encoder(padded(), LENGTHS)
    for other in (padded(width=11), padded(width=11, filler=7)):
        again = encoder(other, LENGTHS)
        assert torch.equal(again.states[:, :5], memory.states)
        assert (again.states[:, 5:] == 0).all()
        assert torch.equal(again.final, memory.final)


@cells
def test_embeddings_stand_beside_the_states(cell: Cell) -> None:
    plain, encoder = make(cell), make(cell, embeddings=True)
    encoder.load_state_dict(plain.state_dict())
    without, memory = plain(padded(), LENGTHS), encoder(padded(filler=7), LENGTHS)
    assert memory.states.shape == (3, 5, encoder.output_dim) == (3, 5, 6 + 5)
    assert (encoder.final_dim, plain.final_dim, plain.output_dim) == (6, 6, 6)
    assert torch.equal(memory.states[..., :6], without.states)
    assert torch.equal(memory.final, without.final)
    for row, ids in enumerate(SENTENCES):
        assert torch.equal(memory.states[row, : len(ids), 6:], encoder.embedding.weight[ids])
        assert (memory.states[row, len(ids) :] == 0).all()


def test_padding_gets_no_gradient_and_its_embedding_stays_zero() -> None:
    encoder = make()
    assert (encoder.embedding.weight[0] == 0).all()
    torch.autograd.backward(encoder(padded(filler=7), LENGTHS).states.sum())
    gradient = encoder.embedding.weight.grad
    assert gradient is not None
    used = {i for ids in SENTENCES for i in ids}
    assert {i for i in range(11) if gradient[i].abs().max() > 0} == used
    with_other_pad = RecurrentEncoder(11, 5, 3, pad_id=4)
    assert (with_other_pad.embedding.weight[4] == 0).all()
    assert with_other_pad.embedding.padding_idx == 4


def test_one_direction_has_single_width_and_sees_only_the_past() -> None:
    encoder = make(bidirectional=False)
    memory = encoder(padded(), LENGTHS)
    assert memory.states.shape == (3, 5, 3) == (3, 5, encoder.output_dim)
    for row, length in enumerate(LENGTHS.tolist()):
        assert torch.equal(memory.final[row], memory.states[row, length - 1])
    other_end = torch.tensor([[3, 1, 4, 1, 8]])
    assert torch.equal(encoder(other_end, LENGTHS[:1]).states[0, :4], memory.states[0, :4])


def test_dropout_acts_in_training_only() -> None:
    encoder = make(layers=2, dropout=0.5)
    assert torch.equal(encoder(padded(), LENGTHS).states, encoder(padded(), LENGTHS).states)
    assert encoder.recurrent.dropout == 0.5
    encoder.train()
    first, second = encoder(padded(), LENGTHS), encoder(padded(), LENGTHS)
    assert not torch.equal(first.states, second.states)
    assert not torch.equal(first.final, second.final)


def test_every_parameter_gets_a_gradient() -> None:
    encoder = make("lstm", layers=2)
    memory = encoder(padded(), LENGTHS)
    torch.autograd.backward(memory.states.square().sum())
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_refusals() -> None:
    with pytest.raises(ValueError, match="cell must be 'gru' or 'lstm', got 'rnn'"):
        make("rnn")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"lengths must be at least 1, got \[5, 0, 3\]; a sentence has at"):
        make()(padded(), torch.tensor([5, 0, 3]))
