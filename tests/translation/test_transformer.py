"""The Transformer against torch's layers, and its decoder step by step against all at once."""

import math
from collections.abc import Iterator
from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import masks
from headlights.attention import MultiHeadAttention
from headlights.translation.encoders import Memory
from headlights.translation.positions import LearnedPositions, SinusoidalPositions, sinusoids
from headlights.translation.search import SearchOptions, search
from headlights.translation.transformer import TransformerDecoder, TransformerEncoder, TransformerState
from headlights.translation.transformer_layers import (
    DecoderLayer,
    EncoderLayer,
    Norm,
    Residual,
    TransformerShape,
)
from tests.attention.oracle import close

V, E, H, F, T = 17, 12, 3, 11, 5
LENGTHS = [3, 1, 5]
KINDS = list(product(["pre", "post"], ["sinusoidal", "learned", "rotary"]))

every_kind = pytest.mark.parametrize(("norm", "positions"), KINDS)
norms = pytest.mark.parametrize("norm", ["pre", "post"])


def shape(**options: Any) -> TransformerShape:
    return TransformerShape(**{"embed_dim": E, "heads": H, "feedforward_dim": F, "layers": 2, **options})


def shake(module: nn.Module) -> None:
    """Parameters that begin as 0 or 1 would hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))


def make_decoder(dtype: torch.dtype = torch.float64, **options: Any) -> TransformerDecoder:
    decoder = TransformerDecoder(V, shape(**options)).to(dtype).eval()
    shake(decoder)
    return decoder


def remember(*, M: int = 5, rubbish: float = 1e3, dtype: torch.dtype = torch.float64) -> Memory:
    """Random states, with rubbish where there is padding."""
    states = torch.randn(3, 5, E, dtype=dtype, generator=torch.Generator().manual_seed(7))
    states = torch.cat([states, torch.zeros(3, M - 5, E, dtype=dtype)], 1)
    lengths = torch.tensor(LENGTHS)
    states[torch.arange(M) >= lengths[:, None]] = rubbish
    return Memory(states, lengths, states[:, 0])


def target_ids() -> Tensor:
    return torch.tensor([[1, 5, 9, 2, 16], [1, 12, 3, 3, 4], [1, 4, 0, 0, 0]])


def stepwise(
    decoder: TransformerDecoder, memory: Memory
) -> Iterator[tuple[Tensor, TransformerState, Tensor | None]]:
    state = decoder.start(memory)
    for tokens in target_ids().unbind(1):
        logits, state, weights = decoder.step(tokens, state, need_weights=True)
        yield logits, state, weights


@every_kind
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_cached_steps_equal_all_at_once(
    norm: Norm, positions: str, dtype: torch.dtype, tolerance: float, grad: bool
) -> None:
    decoder, memory = make_decoder(dtype, norm=norm, positions=positions), remember(dtype=dtype)
    with torch.set_grad_enabled(grad):
        decoded = decoder(target_ids(), memory, need_weights=True)
        logits = decoder.project(decoded.states)
        steps = list(stepwise(decoder, memory))
        silent = decoder(target_ids(), memory)
    assert logits.shape == (3, T, V)
    scale = max(1.0, float(logits.detach().abs().max()))
    together = torch.stack([step[0] for step in steps], 1)
    assert torch.allclose(together, logits, rtol=0.0, atol=tolerance * scale)
    assert torch.equal(together.argmax(-1), logits.argmax(-1))
    assert decoded.weights is not None
    assert decoded.weights.shape == (3, T, 2, H, 5)
    seen = torch.stack([step[2] for step in steps if step[2] is not None], 1)
    assert torch.allclose(seen, decoded.weights, rtol=0.0, atol=tolerance)
    assert torch.allclose(decoded.weights.sum(-1), torch.ones(3, T, 2, H, dtype=dtype))
    for row, length in enumerate(LENGTHS):
        assert (decoded.weights[row, ..., length:] == 0).all()
    assert silent.weights is None
    assert torch.allclose(silent.states, decoded.states, rtol=0.0, atol=tolerance * scale)


@every_kind
def test_selected_rows_go_on_as_they_were(norm: Norm, positions: str) -> None:
    decoder, memory = make_decoder(norm=norm, positions=positions), remember()
    with torch.no_grad():
        before = list(stepwise(decoder, memory))
        state = before[1][1]
        for chosen in ([2, 0, 0, 1], [0, 0, 1, 1, 2, 2], [1], [0, 1, 0, 1]):
            rows = torch.tensor(chosen)
            logits, _, weights = decoder.step(target_ids()[rows, 2], state.select(rows), need_weights=True)
            assert close(logits, before[2][0][rows])
            assert weights is not None
            assert before[2][2] is not None
            assert close(weights, before[2][2][rows])
        assert len(state.select(torch.tensor([], dtype=torch.long)).lengths) == 0
        # Two beams of each sentence that part, then are sorted anew, then some sentences leave.
        beams = state.select(torch.tensor([0, 0, 1, 1, 2, 2]))
        tokens = torch.tensor([9, 8, 3, 7, 0, 5])
        _, beams, _ = decoder.step(tokens, beams)
        sorted_anew = torch.tensor([1, 0, 3, 3, 4, 5])
        beams = beams.select(sorted_anew, same_sentences=True)
        left = torch.tensor([5, 4, 1, 1])
        logits, _, _ = decoder.step(torch.tensor([6, 7, 8, 9]), beams.select(left))
        for row, (place, token) in enumerate(zip(sorted_anew[left].tolist(), (6, 7, 8, 9), strict=True)):
            sentence = place // 2
            ids = [*target_ids()[sentence, :2].tolist(), int(tokens[place]), token]
            alone = Memory(
                memory.states[sentence : sentence + 1], memory.lengths[sentence : sentence + 1], memory.final
            )
            expected = decoder.project(decoder(torch.tensor([ids]), alone).states)[0, -1]
            assert close(logits[row], expected)


@every_kind
@pytest.mark.parametrize("seed", range(4))
def test_beams_sorted_at_random_go_on_with_what_each_has_written(
    norm: Norm, positions: str, seed: int
) -> None:
    decoder = make_decoder(torch.float64, norm=norm, positions=positions)
    memory = remember(dtype=torch.float64)
    draw = Random(seed)
    sentences, written = [0, 1, 2], [[1], [1], [1]]  # of each row
    with torch.no_grad():
        _, state, _ = decoder.step(torch.tensor([1, 1, 1]), decoder.start(memory))
        rows = [row for row in range(3) for _ in range(4)]  # four beams a sentence
        for step in range(14):
            if step == 10:
                rows = rows[:4] + rows[8:]  # the second sentence is done
            state = state.select(torch.tensor(rows), same_sentences=step not in (0, 10))
            tokens = [draw.randrange(3, V) for _ in rows]
            sentences = [sentences[row] for row in rows]
            written = [[*written[row], token] for row, token in zip(rows, tokens, strict=True)]
            logits, state, _ = decoder.step(torch.tensor(tokens), state)
            rows = [row // 4 * 4 + draw.randrange(4) for row in range(len(tokens))]
        whole = Memory(memory.states[sentences], memory.lengths[sentences], memory.final[sentences])
        expected = decoder.project(decoder(torch.tensor(written), whole).states)[:, -1]
    assert torch.allclose(logits, expected, rtol=0.0, atol=1e-12)


def test_beams_of_a_sentence_share_its_keys() -> None:
    decoder, memory = make_decoder(), remember()
    with torch.no_grad():
        state = decoder.start(memory).select(torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2]))
        assert state.beam == 3
        assert [None if c.key is None else len(c.key) for c in state.sources] == [3, 3]
        _, state, _ = decoder.step(torch.arange(9), state)
        assert [None if c.key is None else c.key.shape for c in state.own] == [(3, H, 3, E // H)] * 2
        anew = state.select(torch.tensor([2, 1, 0, 3, 4, 5, 8, 8, 8]), same_sentences=True)
        assert anew.sources is state.sources
        assert anew.own is state.own
        assert anew.written is not None
        assert anew.written.long().argmax(1).tolist() == [2, 1, 0, 0, 1, 2, 2, 2, 2]
        assert state.select(torch.arange(9), same_sentences=True) is state
        fewer = state.select(torch.tensor([3, 4, 5, 8, 6, 7]))
        assert (fewer.beam, fewer.lengths.tolist()) == (3, [1, 5])


@pytest.mark.parametrize("leaving", [False, True])
def test_what_no_beam_has_any_more_is_let_go(leaving: bool) -> None:
    decoder, memory = make_decoder(), remember()
    first_of_each = [0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8]
    lengths = []
    with torch.no_grad():
        _, state, _ = decoder.step(torch.tensor([1, 1, 1]), decoder.start(memory))
        state = state.select(torch.arange(3).repeat_interleave(4))
        for _ in range(7):
            _, state, _ = decoder.step(torch.arange(12), state)
            state = state.select(torch.tensor(first_of_each), same_sentences=not leaving)
            lengths.append(state.own[0].length)
            assert state.written is not None
            assert state.written.shape == (12, lengths[-1])
    # A row has one token more at each step: 2, 3, ... The tokens of the other three beams are let go at once
    # when sentences may leave; or when they are more than 2 * 1 + 16, which is at 1 + 5 * 4, where 6 remain.
    assert lengths == (list(range(2, 9)) if leaving else [5, 9, 13, 17, 6, 10, 14])


def test_s32_source_keys_are_projected_once_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, memory = make_decoder(), remember()
    projected: list[tuple[int, ...]] = []
    forward = MultiHeadAttention.forward

    def spy(self: MultiHeadAttention, query: Tensor, key: Tensor, *rest: Any, **options: Any) -> Any:
        if any(self is layer.source_attention for layer in decoder._decoder_layers()):
            projected.append(tuple(key.shape))
        return forward(self, query, key, *rest, **options)

    monkeypatch.setattr(MultiHeadAttention, "forward", spy)
    with torch.no_grad():
        search(decoder, memory, SearchOptions(beam=4, max_extra=3), bos_id=1, eos_id=2)
    assert projected[:2] == [(3, 5, E)] * 2  # once in each layer, for sentences, not for beams
    assert {size for _, size, _ in projected[2:]} == {0}


def test_steps_append_without_copies() -> None:
    decoder, memory = make_decoder(), remember()
    places = []
    with torch.no_grad():
        state = decoder.start(memory)
        for tokens in (torch.tensor([3, 4, 5]),) * 9:
            _, state, _ = decoder.step(tokens, state)
            assert state.own[0].key is not None
            places.append(state.own[0].key.data_ptr())
    # Storage doubles: it moves when 1, 2, 4 and 8 rows are full, and at no other step.
    assert [a != b for a, b in pairwise(places)] == [n in (1, 2, 4, 8) for n in range(1, 9)]


@every_kind
def test_later_tokens_do_not_move_earlier_logits(norm: Norm, positions: str) -> None:
    decoder, memory = make_decoder(norm=norm, positions=positions), remember()
    longer = torch.cat([target_ids(), torch.full((3, 2), 8)], 1)
    longer[:, T - 1] = 6
    expected = decoder(target_ids(), memory).states[:, : T - 1]
    assert close(decoder(longer, memory).states[:, : T - 1], expected)
    first = decoder(target_ids(), memory).states[:, 2].sum()
    (gradient,) = torch.autograd.grad(first, decoder.embedding.weight)
    assert (gradient[16] == 0).all()  # read at the last step only
    assert (gradient[[1, 5, 9, 12]].abs().sum(-1) > 0).all()


@every_kind
def test_padding_has_no_influence(norm: Norm, positions: str) -> None:
    decoder = make_decoder(norm=norm, positions=positions)
    expected = decoder(target_ids(), remember(), need_weights=True)
    for memory in (remember(rubbish=-31.0), remember(M=11, rubbish=0.0)):
        decoded = decoder(target_ids(), memory, need_weights=True)
        assert close(decoded.states, expected.states)
        assert close(decoded.weights[..., :5], expected.weights)
    encoder = TransformerEncoder(V, shape(norm=norm, positions=positions)).double().eval()
    shake(encoder)
    ids = torch.tensor([[5, 9, 2, 0, 0], [7, 0, 0, 0, 0], [3, 4, 5, 6, 2]])
    lengths = torch.tensor(LENGTHS)
    together = encoder(ids, lengths)
    wider = encoder(nn.functional.pad(ids, (0, 3), value=11), lengths)
    assert close(wider.states[:, :5], together.states)
    assert (wider.states[:, 5:] == 0).all()
    for row, length in enumerate(LENGTHS):
        alone = encoder(ids[row : row + 1, :length], lengths[row : row + 1])
        assert close(together.states[row, :length], alone.states[0])
        assert (together.states[row, length:] == 0).all()
        assert close(together.final[row], alone.states[0, -1])
    with pytest.raises(ValueError, match=r"lengths must be at least 1, got \[3, 0, 5\]"):
        encoder(ids, torch.tensor([3, 0, 5]))


def copy_residual(ours: Residual, theirs: nn.Module) -> None:
    assert isinstance(theirs, nn.LayerNorm)
    ours.norm.load_state_dict(theirs.state_dict())


@norms
def test_encoder_layer_equals_torch(norm: Norm) -> None:
    theirs = nn.TransformerEncoderLayer(
        E, H, F, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    shake(theirs)
    ours = EncoderLayer(shape(norm=norm)).double()
    ours.self_attention.load_state_dict(theirs.self_attn.state_dict())
    copy_residual(ours.residual, theirs.norm1)
    copy_feed_forward(ours, theirs, theirs.norm2)
    memory = remember(rubbish=0.5)
    hidden = torch.arange(5) >= memory.lengths[:, None]
    found = ours(memory.states, masks.lengths(memory.lengths))
    expected = theirs(memory.states, src_key_padding_mask=hidden)
    assert close(found[~hidden], expected[~hidden])


@norms
def test_decoder_layer_equals_torch(norm: Norm) -> None:
    theirs = nn.TransformerDecoderLayer(
        E, H, F, dropout=0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64
    )
    shake(theirs)
    ours = DecoderLayer(shape(norm=norm)).double()
    ours.self_attention.load_state_dict(theirs.self_attn.state_dict())
    ours.source_attention.load_state_dict(theirs.multihead_attn.state_dict())
    copy_residual(ours.residual, theirs.norm1)
    copy_residual(ours.source_residual, theirs.norm2)
    copy_feed_forward(ours, theirs, theirs.norm3)
    memory, x = remember(), torch.randn(3, 4, E).double()
    expected = theirs(
        x,
        memory.states,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(4, dtype=torch.float64),
        tgt_is_causal=True,
        memory_key_padding_mask=torch.arange(5) >= memory.lengths[:, None],
    )
    found, weights = ours(x, memory.states, masks.lengths(memory.lengths), need_weights=False)
    assert weights is None
    assert close(found, expected)


def copy_feed_forward(ours: EncoderLayer | DecoderLayer, theirs: Any, norm: nn.Module) -> None:
    ours.feed_forward.widen.load_state_dict(theirs.linear1.state_dict())
    ours.feed_forward.narrow.load_state_dict(theirs.linear2.state_dict())
    copy_residual(ours.feed_forward.residual, norm)


def test_sinusoids_by_hand() -> None:
    # E = 4: waves 1 and 10000^(-2/4) = 1/100, sine and cosine beside each other.
    expected = [[math.sin(p), math.cos(p), math.sin(p / 100), math.cos(p / 100)] for p in (3, 4)]
    assert torch.allclose(sinusoids(3, 2, 4), torch.tensor(expected).double(), atol=1e-15)
    assert sinusoids(0, 3, 5).shape == (3, 5)
    zeros = torch.zeros(2, 3, 4)
    assert torch.equal(SinusoidalPositions()(zeros, 7), sinusoids(7, 3, 4).float().expand(2, 3, 4))


def test_learned_positions_and_what_lies_beyond_them() -> None:
    positions = LearnedPositions(5, 4)
    table = positions.embedding.weight
    added = positions(torch.zeros(2, 4, 4), 3)
    assert torch.equal(added[1], torch.stack([table[3], table[4], table[4], table[4]]))


@norms
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_order_matters(norm: Norm, positions: str) -> None:
    encoder = TransformerEncoder(V, shape(norm=norm, positions=positions)).double().eval()
    shake(encoder)
    one, other = (encoder(torch.tensor([ids]), torch.tensor([3])).states[0] for ids in ([5, 6, 7], [6, 5, 7]))
    assert (one[2] - other[2]).abs().max() > 1e-3


def test_every_parameter_gets_a_gradient() -> None:
    for norm, positions in KINDS:
        encoder = TransformerEncoder(V, shape(norm=norm, positions=positions, max_positions=5)).double()
        decoder = make_decoder(norm=norm, positions=positions, max_positions=5)
        memory = encoder(torch.tensor([[5, 9, 2, 3, 4]]), torch.tensor([5]))
        decoded = decoder(target_ids()[:1], memory)
        torch.autograd.backward(decoder.project(decoded.states).sin().sum())
        for name, parameter in (*encoder.named_parameters(), *decoder.named_parameters()):
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_dropout_acts_in_training_only() -> None:
    for decoder in (make_decoder(dropout=0.5), make_decoder(attention_dropout=0.5)):
        memory = remember()
        assert torch.equal(decoder(target_ids(), memory).states, decoder(target_ids(), memory).states)
        decoder.train()
        assert not torch.equal(decoder(target_ids(), memory).states, decoder(target_ids(), memory).states)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="norm must be 'pre' or 'post', got 'none'"):
        shape(norm="none")
    with pytest.raises(ValueError, match="positions must be 'sinusoidal' or 'learned' or 'rotary', got 'x'"):
        shape(positions="x")
    with pytest.raises(ValueError, match="embed_dim must be a multiple of heads, got embed_dim = 12 and"):
        shape(heads=5)
    with pytest.raises(ValueError, match=r"so embed_dim / heads must be even, got 9 / 3"):
        shape(positions="rotary", embed_dim=9)
