"""The recurrent decoder in all its variants, against its formulas written out."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import attend, scores
from headlights.attention import PreparedKey, Score
from headlights.translation import decoders
from headlights.translation.decoders import FinalUse, Mix, QueryOrder, RecurrentDecoder, RecurrentState
from headlights.translation.encoders import Cell, Memory
from headlights.translation.focus import Focus
from headlights.translation.unrolled import Linear, gru_cell
from tests.attention.oracle import close
from tests.translation.oracle import Distance, decode

V, E, H, T = 13, 5, 7, 4
LENGTHS = [3, 1, 5]

# What makes each score, and how wide the encoder states are: some scores compare equal widths only.
SCORES: dict[str, tuple[Callable[[], Score | nn.Module | None], int]] = {
    "additive": (lambda: scores.Additive(H, 11, 3), 11),
    "bilinear": (lambda: scores.Bilinear(H, 11), 11),
    "dot": (lambda: scores.Dot(0.7, learned=True), H),
    "scaled-dot": (scores.ScaledDot, H),
    "callable": (Distance, H),
    "none": (lambda: None, 11),
}

cells = pytest.mark.parametrize("cell", ["gru", "lstm"])
depths = pytest.mark.parametrize("layers", [1, 2])
mixes = pytest.mark.parametrize("mix", ["concat", "add"])
queries = pytest.mark.parametrize("query", ["previous", "current"])
every_score = pytest.mark.parametrize("score", SCORES)


def make(score: str = "additive", **options: Any) -> RecurrentDecoder:
    build, memory_dim = SCORES[score]
    return RecurrentDecoder(V, E, H, memory_dim, score=build(), **options).double().eval()


def remember(width: int, *, M: int = 5, rubbish: float = 1e3) -> Memory:
    """Random states, with rubbish where there is padding."""
    generator = torch.Generator().manual_seed(7)
    states = torch.randn(3, 5, width, dtype=torch.float64, generator=generator)
    states = torch.cat([states, torch.zeros(3, M - 5, width, dtype=torch.float64)], 1)
    lengths = torch.tensor(LENGTHS)
    states[torch.arange(M) >= lengths[:, None]] = rubbish
    return Memory(states, lengths, torch.randn(3, width, dtype=torch.float64, generator=generator))


def target_ids() -> Tensor:
    return torch.tensor([[1, 5, 9, 2], [1, 12, 3, 3], [1, 4, 0, 0]])


def stepwise(
    decoder: RecurrentDecoder, memory: Memory
) -> Iterator[tuple[Tensor, RecurrentState, Tensor | None]]:
    state = decoder.start(memory)
    for tokens in target_ids().unbind(1):
        logits, state, weights = decoder.step(tokens, state, need_weights=True)
        yield logits, state, weights


@cells
@depths
@mixes
@queries
@every_score
def test_s23_s26_every_variant_equals_its_formula(
    cell: Cell, layers: int, mix: Mix, query: QueryOrder, score: str
) -> None:
    decoder = make(score, cell=cell, layers=layers, mix=mix, query=query)
    memory = remember(SCORES[score][1])
    decoded = decoder(target_ids(), memory, need_weights=True)
    logits = decoder.project(decoded.states)
    assert logits.shape == (3, T, V)  # S14
    assert close(logits.softmax(-1).sum(-1), torch.ones(3, T).double())
    steps = list(stepwise(decoder, memory))
    assert close(torch.stack([step[0] for step in steps], 1), logits)
    assert close(decoder(target_ids(), memory).states, decoded.states)
    for row, length in enumerate(LENGTHS):
        expected, weights = decode(
            decoder, target_ids()[row].tolist(), memory.states[row, :length], memory.final[row]
        )
        assert close(logits[row], expected)
        if weights is None:
            assert decoded.weights is None
            assert all(step[2] is None for step in steps)
            continue
        assert decoded.weights is not None
        assert decoded.weights.shape == (3, T, 1, 1, 5)
        assert close(decoded.weights[row, :, 0, 0, :length], weights)
        assert (decoded.weights[row, :, 0, 0, length:] == 0).all()  # S24
        for t, (_, _, seen) in enumerate(steps):
            assert seen is not None
            assert close(seen[row], decoded.weights[row, t])


def stepwise_equals(decoder: RecurrentDecoder, memory: Memory) -> None:
    """Steps, all at once, and the formula written out give the same logits."""
    decoded = decoder(target_ids(), memory, need_weights=True)
    logits = decoder.project(decoded.states)
    assert close(torch.stack([step[0] for step in stepwise(decoder, memory)], 1), logits)
    for row, length in enumerate(LENGTHS):
        expected, _ = decode(
            decoder, target_ids()[row].tolist(), memory.states[row, :length], memory.final[row]
        )
        assert close(logits[row], expected)


@cells
@depths
@pytest.mark.parametrize("final", ["first", "every"])
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_a_second_cell_reads_what_the_state_between_asked_for(
    cell: Cell, layers: int, final: FinalUse, score: str
) -> None:
    decoder = make(score, cell=cell, layers=layers, query="between", final=final)
    memory = remember(SCORES[score][1])
    stepwise_equals(decoder, memory)
    torch.autograd.backward(decoder.project(decoder(target_ids(), memory).states).square().sum())
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize(("score", "mix"), [("none", "concat"), ("additive", "add")])
def test_a_second_cell_needs_a_context_of_its_own(score: str, mix: Mix) -> None:
    with pytest.raises(ValueError, match="query 'between' needs attention with mix 'concat', got score"):
        make(score, query="between", mix=mix)


@cells
@mixes
@queries
@pytest.mark.parametrize("score", ["additive", "none"])
def test_s19_the_final_state_enters_every_cell(cell: Cell, mix: Mix, query: QueryOrder, score: str) -> None:
    decoder = make(score, cell=cell, layers=2, mix=mix, query=query, final="every")
    stepwise_equals(decoder, remember(11))


@pytest.mark.parametrize("final", ["first", "every"])
@pytest.mark.parametrize("score", ["additive", "none"])
def test_s19_a_changed_final_state_moves_every_step_only_if_asked_for(final: FinalUse, score: str) -> None:
    decoder, memory = make(score, final=final), remember(11)
    with torch.no_grad():
        decoder.bridge.weight.zero_()  # the first state is fixed
    moved = Memory(memory.states, memory.lengths, memory.final + 1)
    difference = decoder(target_ids(), memory).states - decoder(target_ids(), moved).states
    assert ((difference.abs().amax(-1) > 1e-4) == (final == "every")).all()


@cells
@pytest.mark.parametrize("final", ["first", "every"])
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_what_made_a_word_is_fed_to_the_next_step(cell: Cell, final: FinalUse, score: str) -> None:
    decoder = make(score, cell=cell, layers=2, query="current", input_feeding=True, final=final)
    memory = remember(SCORES[score][1])
    stepwise_equals(decoder, memory)
    state = decoder.start(memory)
    for t, tokens in enumerate(target_ids().unbind(1)):
        logits, state, _ = decoder.step(tokens, state)
        assert state.fed is not None
        assert close(decoder.project(state.fed), logits)
        assert close(state.fed, decoder(target_ids(), memory).states[:, t])


@cells
@mixes
@queries
@every_score
def test_every_parameter_gets_a_gradient(cell: Cell, mix: Mix, query: QueryOrder, score: str) -> None:
    decoder = make(score, cell=cell, layers=2, mix=mix, query=query)
    decoded = decoder(target_ids(), remember(SCORES[score][1]))
    torch.autograd.backward(decoder.project(decoded.states).square().sum())
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name
    assert decoder.embedding.weight.grad is not None
    assert (decoder.embedding.weight.grad[0] == 0).all()  # padding


def test_weights_carry_gradients() -> None:
    decoder = make()
    weights = decoder(target_ids(), remember(11), need_weights=True).weights
    torch.autograd.backward(weights.square().sum())
    assert isinstance(decoder.focus, Focus)
    for parameter in decoder.focus.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


@depths
def test_s12_the_first_state_is_a_projection_of_the_final_encoder_state(layers: int) -> None:
    decoder = RecurrentDecoder(V, E, H, H * layers, layers=layers, cell="lstm").double()
    with torch.no_grad():
        decoder.bridge.weight.copy_(torch.eye(H * layers))
        decoder.bridge.bias.zero_()
    memory = remember(H * layers)
    state = decoder.start(memory)
    for layer in range(layers):
        expected = torch.tanh(memory.final[:, layer * H : (layer + 1) * H])
        assert torch.equal(state.hidden[layer], expected)
    assert state.cell is not None
    assert (state.cell == 0).all()


def test_s12_without_attention_only_the_final_state_counts() -> None:
    decoder, memory = make("none"), remember(11)
    other = Memory(memory.states + 1, memory.lengths, memory.final)
    assert torch.equal(decoder(target_ids(), memory).states, decoder(target_ids(), other).states)


@queries
@depths
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_s25_the_next_cell_receives_u_plus_its_context(
    query: QueryOrder, layers: int, score: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder, memory = make(score, layers=layers, mix="add", query=query), remember(SCORES[score][1])
    entering: list[Tensor] = []

    def spy(inputs: Tensor, hidden: Tensor, read: Linear, keep: Linear) -> Tensor:
        entering.append(hidden)
        return gru_cell(inputs, hidden, read, keep)

    monkeypatch.setattr(decoders, "gru_cell", spy)
    first = decoder.start(memory)
    states = [first, *(state for _, state, _ in stepwise(decoder, memory))]
    assert decoder.focus is not None
    assert first.sources is not None
    for t in range(T):
        u = states[t].hidden[-1]
        added, _ = decoder.focus(u.unsqueeze(1), first.sources, need_weights=True)
        # Asked after the cell, nothing has been looked for before the first.
        expected = u if t == 0 and query == "current" else u + added.squeeze(1)
        assert torch.equal(entering[t * layers + layers - 1], expected)
        for layer in range(layers - 1):
            assert torch.equal(entering[t * layers + layer], states[t].hidden[layer])


def test_s25_trap5_only_unequal_widths_are_projected() -> None:
    unequal, equal = make("additive", mix="add").focus, make("dot", mix="add").focus
    assert unequal is not None
    assert equal is not None
    assert isinstance(unequal.value_proj, nn.Linear)
    assert unequal.value_proj.weight.shape == (H, 11)
    assert [name for name, _ in unequal.value_proj.named_parameters()] == ["weight"]
    assert isinstance(equal.value_proj, nn.Identity)
    assert unequal.output_dim == equal.output_dim == H


def test_s31_a_callable_score_needs_no_wrapping() -> None:
    decoder = RecurrentDecoder(V, E, H, H, score=lambda query, key: query @ key.mT * 0.5).double()
    reference = RecurrentDecoder(V, E, H, H, score=scores.Dot(0.5)).double()
    reference.load_state_dict(decoder.state_dict())
    memory = remember(H)
    assert close(decoder(target_ids(), memory).states, reference(target_ids(), memory).states)


class Counting(scores.Additive):
    """Counts how often keys are prepared."""

    calls = 0

    def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
        self.calls += 1
        return super().prepare_key(key, visible=visible, start=start)


@mixes
@queries
def test_s32_keys_are_prepared_once_per_sentence(mix: Mix, query: QueryOrder) -> None:
    score = Counting(H, 11, 3)
    decoder = RecurrentDecoder(V, E, H, 11, score=score, mix=mix, query=query).double()
    decoder(target_ids(), remember(11))
    assert score.calls == 1
    state = decoder.start(remember(11)).select(torch.tensor([0, 0, 2]))
    for tokens in target_ids().unbind(1):
        _, state, _ = decoder.step(tokens, state)
    assert score.calls == 2


def test_s33_s34_shapes_of_a_step_and_of_all_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[tuple[int, ...], ...]] = []

    def spy(query: Tensor, key: PreparedKey, value: Tensor, **options: Any) -> Any:
        context, weights = attend(query, key, value, **options)
        calls.append(tuple(tuple(x.shape) for x in (query, key.key, value, context, weights)))
        return context, weights

    monkeypatch.setattr("headlights.translation.focus.attend", spy)
    decoder = make("scaled-dot", query="current")
    list(stepwise(decoder, remember(H)))
    assert calls == [((3, 1, H), (3, 5, H), (3, 5, H), (3, 1, H), (3, 1, 5))] * T
    calls.clear()
    decoder(target_ids(), remember(H), need_weights=True)
    assert calls == [((3, T, H), (3, 5, H), (3, 5, H), (3, T, H), (3, T, 5))]


def test_s34_the_matrix_form_is_attn_u_v_v() -> None:
    decoder, memory = make("scaled-dot", query="current"), remember(H)
    U, _ = decoder.recurrent(decoder.embedding(target_ids()), decoder.start(memory).hidden)
    decoded = decoder(target_ids(), memory, need_weights=True)
    assert decoded.weights is not None
    for row, length in enumerate(LENGTHS):
        real = memory.states[row, :length]
        weights = torch.softmax(U[row] @ real.mT / math.sqrt(H), -1)
        assert close(decoded.weights[row, :, 0, 0, :length], weights)
        read = torch.cat([U[row], weights @ real, decoder.embedding(target_ids()[row])], -1)
        assert close(decoded.states[row], torch.tanh(decoder.readout(read)))


@every_score
@mixes
def test_s23_padding_has_no_influence(score: str, mix: Mix) -> None:
    decoder, width = make(score, mix=mix), SCORES[score][1]
    expected = decoder(target_ids(), remember(width), need_weights=True)
    for memory in (remember(width, rubbish=-31.0), remember(width, M=11, rubbish=0.0)):
        decoded = decoder(target_ids(), memory, need_weights=True)
        assert close(decoded.states, expected.states)
        if expected.weights is not None:
            assert close(decoded.weights[..., :5], expected.weights)


def test_s16_later_tokens_do_not_move_earlier_states() -> None:
    decoder, memory = make(), remember(11)
    longer = torch.cat([target_ids(), torch.full((3, 2), 8)], 1)
    assert close(decoder(longer, memory).states[:, :T], decoder(target_ids(), memory).states)


CARRYING: list[dict[str, Any]] = [
    {"mix": "add", "query": "previous"},
    {"mix": "add", "query": "current", "final": "every"},
    {"query": "current", "final": "every", "input_feeding": True},
    {"query": "between"},
]


@cells
@pytest.mark.parametrize("options", CARRYING, ids=str)
def test_selected_rows_go_on_as_they_were(cell: Cell, options: dict[str, Any]) -> None:
    decoder, memory = make(cell=cell, layers=2, **options), remember(11)
    before = list(stepwise(decoder, memory))
    state = before[1][1]
    kept = [
        tensor.clone()
        for tensor in (state.hidden, state.cell, state.context, state.fed)
        if tensor is not None
    ]
    rows = torch.tensor([2, 0, 0, 1])
    logits, _, weights = decoder.step(target_ids()[rows, 2], state.select(rows), need_weights=True)
    assert close(logits, before[2][0][rows])
    assert weights is not None
    assert before[2][2] is not None
    assert close(weights, before[2][2][rows])
    left = [tensor for tensor in (state.hidden, state.cell, state.context, state.fed) if tensor is not None]
    assert all(map(torch.equal, kept, left))


def test_rows_of_the_same_sentences_share_their_keys() -> None:
    decoder, memory = make(), remember(11)
    twice = decoder.start(memory).select(torch.tensor([0, 0, 1, 1, 2, 2]))
    _, state, _ = decoder.step(torch.tensor([1, 2, 3, 4, 5, 6]), twice)
    rows = torch.tensor([1, 1, 2, 3, 5, 4])
    shared, copied = state.select(rows, same_sentences=True), state.select(rows)
    assert shared.sources is state.sources
    tokens = torch.tensor([2, 3, 4, 5, 6, 7])
    assert torch.equal(decoder.step(tokens, shared)[0], decoder.step(tokens, copied)[0])
    without = make("none").start(memory)
    assert without.select(torch.tensor([2])).sources is None


@mixes
@queries
def test_dropout_between_layers_acts_on_every_path_in_training_only(mix: Mix, query: QueryOrder) -> None:
    decoder, memory = make(layers=2, dropout=0.5, mix=mix, query=query), remember(11)
    decoder.dropout.p = 0.0  # leaves only what is between the layers
    assert torch.equal(decoder(target_ids(), memory).states, decoder(target_ids(), memory).states)
    decoder.train()
    assert not torch.equal(decoder(target_ids(), memory).states, decoder(target_ids(), memory).states)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="cell must be 'gru' or 'lstm', got 'rnn'"):
        make(cell="rnn")
    with pytest.raises(ValueError, match="mix must be 'concat' or 'add', got 'sum'"):
        make(mix="sum")
    with pytest.raises(ValueError, match="query must be 'previous' or 'current' or 'between', got 'next'"):
        make(query="next")
    with pytest.raises(ValueError, match="final must be 'first' or 'every', got 'last'"):
        make(final="last")
    text = "input_feeding needs attention with mix 'concat' and query 'current', got score "
    for score, options in (
        ("none", {"query": "current"}),
        ("additive", {"query": "previous"}),
        ("additive", {"query": "current", "mix": "add"}),
    ):
        with pytest.raises(ValueError, match=text):
            make(score, input_feeding=True, **options)
    with pytest.raises(TypeError, match="score: expected a Score or a callable"):
        RecurrentDecoder(V, E, H, 11, score="additive")  # type: ignore[arg-type]
