"""Watching torch's own attention and Transformer modules."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from headlights import observations, observe
from headlights.watch import Record
from tests.watch.oracle import close

WEIGHTS = observations.Weights()
B, N, M, E, H = 3, 5, 7, 6, 2
PADDING = torch.arange(N) >= torch.tensor([[5], [3], [2]])  # True = padding, shape (B, N)


def _weights(record: Record, name: str) -> Tensor:
    (entry,) = record[name]
    assert isinstance(entry, Tensor)
    return entry


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch_first": {"batch_first": True},
    "no_bias": {"bias": False},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True},
    "both_extras": {"add_bias_kv": True, "add_zero_attn": True},
    "widths": {"kdim": 11, "vdim": 13},
    "everything": {"kdim": 11, "vdim": 13, "add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
}


@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_multihead_attention_variants(variant: str, batched: bool) -> None:
    module = nn.MultiheadAttention(E, H, **VARIANTS[variant], dtype=torch.float64)
    for parameter in module.parameters():
        nn.init.normal_(parameter)

    def inputs(length: int, width: int) -> Tensor:
        shape = (B, length, width) if module.batch_first else (length, B, width)
        return torch.randn(shape if batched else (length, width), dtype=torch.float64)

    query, key, value = inputs(N, E), inputs(M, module.kdim), inputs(M, module.vdim)
    padding = torch.arange(M) >= torch.tensor([[7], [4], [1]])
    call: dict[str, Any] = {
        "key_padding_mask": padding if batched else padding[1],
        "average_attn_weights": False,
    }
    expected_output, expected = module(query, key, value, **call)
    with observe(module, WEIGHTS) as record:
        output, weights = module(query, key, value, **call)
        fast_output, _ = module(query, key, value, **call, need_weights=False)
    assert torch.equal(output, expected_output)
    assert torch.equal(weights, expected)
    assert torch.equal(fast_output, module(query, key, value, **call, need_weights=False)[0])
    assert len(record[""]) == 2
    assert all(close(entry, expected) for entry in record[""])


def _encoder(**options: Any) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(E, H, 7, batch_first=True, **options)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options.get("norm_first", False))
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    return encoder


def _encoder_weights(encoder: nn.TransformerEncoder, x: Tensor, padding: Tensor | None) -> list[Tensor]:
    """Run the encoder in float64 layer by layer, asking each attention module for its weights."""
    encoder = encoder.double().eval()
    x, found = x.double(), []
    for layer in encoder.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        attended, weights = layer.self_attn(x, x, x, key_padding_mask=padding, average_attn_weights=False)
        found.append(weights.detach())
        x = layer.norm1(x + attended)
        x = layer.norm2(x + layer.linear2(torch.relu(layer.linear1(x))))
    encoder.float()
    return found


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("mode", ["train", "eval_grad", "eval_fast_path"])
def test_transformer_encoder(mode: str, padded: bool) -> None:
    encoder = _encoder(dropout=0.1 if mode == "train" else 0.0).train(mode == "train")
    x = torch.randn(B, N, E)
    padding = PADDING if padded else None

    def run() -> tuple[Tensor, Tensor]:
        torch.manual_seed(7)
        with torch.set_grad_enabled(mode != "eval_fast_path"):
            return encoder(x, src_key_padding_mask=padding).detach(), torch.rand(2)

    expected, after = run()
    with observe(encoder, WEIGHTS) as record:
        output, after_watching = run()
    assert list(record) == ["layers.0.self_attn", "layers.1.self_attn"]
    assert torch.equal(after, after_watching)
    if mode == "eval_fast_path":
        real = ~PADDING if padded else torch.ones(B, N, dtype=torch.bool)
        assert torch.allclose(output[real], expected[real], atol=1e-5)
        assert torch.equal(run()[0], expected)  # back on the fast path, where it was
    else:
        assert torch.equal(output, expected)
    for index, weights in enumerate(_encoder_weights(encoder, x, padding)):
        if mode == "train" and index:
            break  # the input of later layers has been through dropout
        recorded = _weights(record, f"layers.{index}.self_attn")
        assert torch.allclose(recorded.double(), weights, atol=1e-6)
        if padded:
            assert recorded.masked_select(PADDING[:, None, None]).eq(0).all()


@pytest.mark.parametrize("layer", ["encoder", "encoder_norm_first", "decoder"])
def test_single_layers(layer: str) -> None:
    x = torch.randn(B, N, E)
    options: dict[str, Any] = {
        "batch_first": True,
        "dropout": 0.0,
        "norm_first": layer == "encoder_norm_first",
    }
    kind = nn.TransformerDecoderLayer if layer == "decoder" else nn.TransformerEncoderLayer
    model = kind(E, H, 7, **options).eval()
    args = (x, torch.randn(B, M, E)) if layer == "decoder" else (x,)
    expected = model(*args)
    with observe(model, observations.Entropy()) as record:
        assert torch.equal(model(*args), expected)
    shapes = {name: tuple(entry.shape) for name, (entry,) in record.items()}
    cross = {"multihead_attn": (B, H, N)} if layer == "decoder" else {}
    assert shapes == {"self_attn": (B, H, N), **cross}


def test_transformer_with_masks_of_every_part() -> None:
    model = nn.Transformer(E, H, 1, 1, 7, dropout=0.0, batch_first=True).eval()
    source, target = torch.randn(B, M, E), torch.randn(B, N, E)
    padding = torch.arange(M) >= torch.tensor([[7], [4], [2]])
    causal = nn.Transformer.generate_square_subsequent_mask(N)
    call = {"tgt_mask": causal, "tgt_is_causal": True, "memory_key_padding_mask": padding}
    expected = model(source, target, src_key_padding_mask=padding, **call)
    with observe(model, WEIGHTS) as record:
        output = model(source, target, src_key_padding_mask=padding, **call)
    assert torch.equal(output, expected)
    encoder = _weights(record, "encoder.layers.0.self_attn")
    own = _weights(record, "decoder.layers.0.self_attn")
    cross = _weights(record, "decoder.layers.0.multihead_attn")
    assert [encoder.shape, own.shape, cross.shape] == [(B, H, M, M), (B, H, N, N), (B, H, N, M)]
    for weights in (encoder, own, cross):
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert own.triu(1).eq(0).all()
    assert encoder.masked_select(padding[:, None, None]).eq(0).all()
    assert cross.masked_select(padding[:, None, None]).eq(0).all()
    layer = model.decoder.layers[0]
    _, theirs = layer.self_attn(target, target, target, attn_mask=causal, average_attn_weights=False)
    assert close(own, theirs)


def test_fully_padded_sentence_has_zero_weights() -> None:
    module = nn.MultiheadAttention(E, H, batch_first=True)
    x = torch.randn(2, N, E)
    padding = torch.tensor([[False] * N, [True] * N])
    with observe(module, WEIGHTS) as record:
        module(x, x, x, key_padding_mask=padding)
    weights = _weights(record, "")
    assert weights[1].eq(0).all()
    assert torch.allclose(weights[0].sum(-1), torch.ones(H, N))
