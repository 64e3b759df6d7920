"""The model's loss against torch's cross-entropy, and its configuration."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headlights import scores
from headlights.translation.architectures import RecurrentConfig
from headlights.translation.batches import Batch, TokenBatches
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.model import TranslationModel
from tests.attention.oracle import close

SOURCES = [[3, 4, 5], [6], [7, 8, 9, 10, 3], [4, 4]]
TARGETS = [[5, 6], [7, 8, 9, 3, 12], [10], [11, 4, 3]]
SIZES: dict[str, Any] = {"embed_dim": 5, "hidden_dim": 7, "encoder_dim": 3, "score_dim": 3, "dropout": 0.0}


def make(**options: Any) -> TranslationModel:
    return TranslationModel(RecurrentConfig(**{**SIZES, **options}), 11, 13).double()


def batch(rows: list[int]) -> Batch:
    pairs = TokenBatches(SOURCES, TARGETS, max_tokens=100, pad_id=0, bos_id=1, eos_id=2)
    return pairs.batch(torch.tensor(rows))


def longer(part: Batch) -> Batch:
    source, read, answer = (F.pad(x, (0, 3)) for x in (part.source, part.target_in, part.target_out))
    return Batch(source, part.source_lengths, read, answer, part.target_lengths, part.indices)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.37])
def test_s16_the_loss_is_cross_entropy_over_real_tokens(smoothing: float) -> None:
    model = make()
    smoothed, exact = torch.zeros(()).double(), torch.zeros(()).double()
    for row in range(4):  # one by one, so that there is no padding
        alone = batch([row])
        logits = model.decoder.project(model(alone).states)[0]
        assert alone.target_out[0].tolist() == [*TARGETS[row], 2]
        smoothed += F.cross_entropy(logits, alone.target_out[0], reduction="sum", label_smoothing=smoothing)
        exact += F.cross_entropy(logits, alone.target_out[0], reduction="sum")
    loss = model.loss(batch([0, 1, 2, 3]), label_smoothing=smoothing)
    assert close(loss.smoothed, smoothed)
    assert close(loss.cross_entropy, exact)
    assert loss.tokens == 2 + 5 + 1 + 3 + 4  # end marks included
    assert not loss.cross_entropy.requires_grad
    assert all(map(close, gradients(model, loss.smoothed), gradients(model, smoothed)))


@pytest.mark.parametrize("chunk", [1, 4, 15, 1000])
def test_the_loss_does_not_depend_on_chunks_or_padding(chunk: int) -> None:
    model = make(score="bilinear", mix="add")
    whole = model.loss(batch([0, 1, 2, 3]), label_smoothing=0.1)
    expected = gradients(model, whole.smoothed)
    for part in (batch([0, 1, 2, 3]), longer(batch([0, 1, 2, 3])), batch([2, 0, 3, 1])):
        loss = model.loss(part, label_smoothing=0.1, chunk=chunk)
        assert close(loss.smoothed, whole.smoothed)
        assert close(loss.cross_entropy, whole.cross_entropy)
        assert loss.tokens == whole.tokens
        assert all(map(close, gradients(model, loss.smoothed), expected))


def test_s21_source_and_target_embeddings_are_separate() -> None:
    model = make()
    assert model.encoder.embedding.weight.shape == (11, 5)
    assert model.decoder.embedding.weight.shape == (13, 5)
    assert model.encoder.embedding.weight.data_ptr() != model.decoder.embedding.weight.data_ptr()
    # No tying by default: the output layer has a table of its own, too.
    assert model.decoder.output.weight.data_ptr() != model.decoder.embedding.weight.data_ptr()


@pytest.mark.parametrize(
    ("name", "kind", "encoder_dim", "hidden_dim"),
    [
        ("additive", scores.Additive, 3, 7),
        ("bilinear", scores.Bilinear, 3, 7),
        ("dot", scores.Dot, 5, 10),
        ("scaled-dot", scores.ScaledDot, 5, 10),
    ],
)
def test_s26_s30_a_score_by_name(name: str, kind: type, encoder_dim: int, hidden_dim: int) -> None:
    model = make(score=name, encoder_dim=encoder_dim, hidden_dim=hidden_dim)
    assert isinstance(model.decoder, RecurrentDecoder)
    assert model.decoder.focus is not None
    assert type(model.decoder.focus.score) is kind
    decoded = model(batch([0, 1]), need_weights=True)
    assert decoded.weights.shape == (2, 6, 1, 1, 4)


@pytest.mark.parametrize("learned", [False, True])
def test_s28_a_product_times_any_constant_by_name(learned: bool) -> None:
    sizes = {"encoder_dim": 5, "hidden_dim": 10}
    for scale, expected in ((None, 1.0), (0.0, 0.0), (0.3, 0.3)):
        model = make(score="dot", score_scale=scale, learn_scale=learned, **sizes)
        assert isinstance(model.decoder, RecurrentDecoder)
        assert model.decoder.focus is not None
        score = model.decoder.focus.score
        assert isinstance(score, scores.Dot)
        assert torch.as_tensor(score.scale).detach().item() == pytest.approx(expected)
        assert isinstance(score.scale, nn.Parameter) == learned


def test_every_variant_is_chosen_by_name() -> None:
    chosen: dict[str, Any] = {"cell": "lstm", "layers": 2, "mix": "concat", "query": "current"}
    decoder = make(**chosen, final="every", input_feeding=True).decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert (decoder.mix, decoder.query, decoder.layers) == ("concat", "current", 2)
    assert (decoder.final, decoder.input_feeding) == ("every", True)
    assert isinstance(decoder.recurrent, nn.LSTM)


@pytest.mark.parametrize("final", ["first", "every"])
def test_attention_to_embeddings_beside_the_states(final: str) -> None:
    plain = make(final=final)
    model = make(final=final, embeddings_in_memory=True)
    assert model.encoder.output_dim == plain.encoder.output_dim + 5
    decoder, plain_decoder = model.decoder, plain.decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert isinstance(plain_decoder, RecurrentDecoder)
    assert decoder.bridge.in_features == 6  # the final state is as wide as without
    assert decoder.recurrent.input_size == plain_decoder.recurrent.input_size + 5  # the context is not
    torch.autograd.backward(model.loss(batch([0, 1])).smoothed)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_embeddings_without_attention_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"embeddings_in_memory needs attention .*score 'none'; set it to false"
    ):
        make(score="none", embeddings_in_memory=True)


def test_a_model_without_attention_has_no_weights() -> None:
    model = make(score="none")
    assert model.decoder.focus is None
    assert model(batch([0, 1]), need_weights=True).weights is None


@pytest.mark.parametrize("name", ["dot", "scaled-dot"])
def test_products_of_unequal_widths_are_refused_in_one_clear_line(name: str) -> None:
    text = (
        f"score '{name}' compares vectors of one width, but hidden_dim is 7 and encoder states are 6 wide "
        r"\(two directions of encoder_dim = 3\); set hidden_dim to 6 or choose score 'bilinear'"
    )
    with pytest.raises(ValueError, match=text):
        make(score=name)
