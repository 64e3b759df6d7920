"""Watching Hugging Face models built from small random configurations; nothing is downloaded."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import observations, observe
from tests.watch.oracle import close

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")

B, N, T = 2, 7, 5
SIZES: dict[str, dict[str, Any]] = {
    "Bert": {
        "hidden_size": 12,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 13,
        "max_position_embeddings": 17,
    },
    "GPT2": {
        "n_embd": 12,
        "n_layer": 2,
        "n_head": 3,
        "n_positions": 17,
        "bos_token_id": 1,
        "eos_token_id": 0,
    },
    "Llama": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 13,
        "max_position_embeddings": 17,
    },
    "T5": {
        "d_model": 12,
        "d_kv": 5,
        "d_ff": 13,
        "num_layers": 2,
        "num_heads": 3,
        "decoder_start_token_id": 0,
    },
    "Marian": {
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 13,
        "decoder_ffn_dim": 13,
        "max_position_embeddings": 17,
        "pad_token_id": 30,
        "decoder_start_token_id": 30,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    },
}
# where the attention modules are, for each list of weights that the model itself can return
PLACES = {
    "Bert": {"attentions": "encoder.layer.{}.attention.self"},
    "GPT2": {"attentions": "h.{}.attn"},
    "Llama": {"attentions": "layers.{}.self_attn"},
    "T5": {
        "encoder_attentions": "encoder.block.{}.layer.0.SelfAttention",
        "decoder_attentions": "decoder.block.{}.layer.0.SelfAttention",
        "cross_attentions": "decoder.block.{}.layer.1.EncDecAttention",
    },
    "Marian": {
        "encoder_attentions": "encoder.layers.{}.self_attn",
        "decoder_attentions": "decoder.layers.{}.self_attn",
        "cross_attentions": "decoder.layers.{}.encoder_attn",
    },
}


def _model(kind: str, attention: str) -> Any:
    config = getattr(transformers, f"{kind}Config")(vocab_size=31, **SIZES[kind])
    config._attn_implementation = attention
    torch.manual_seed(11)
    model = getattr(transformers, f"{kind}Model")(config)
    if kind != "T5":  # as initialised, the others give all keys nearly the same weight
        for parameter in model.parameters():
            parameter.data.mul_(3)
    return model.eval()


def _call(kind: str) -> dict[str, Tensor]:
    torch.manual_seed(13)
    mask = torch.ones(B, N, dtype=torch.long)
    mask[1, 4:] = 0
    call = {"input_ids": torch.randint(1, 30, (B, N)), "attention_mask": mask}
    if kind in ("T5", "Marian"):
        call["decoder_input_ids"] = torch.randint(1, 30, (B, T))
    return call


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", SIZES)
def test_recorded_weights_are_those_the_eager_model_returns(kind: str, attention: str) -> None:
    model, call = _model(kind, attention), _call(kind)
    with torch.no_grad():
        expected = model(**call)[0]
        with observe(model, observations.Weights()) as record:
            output = model(**call)[0]
        theirs = _model(kind, "eager").double()(**call, output_attentions=True)
    assert torch.equal(output, expected)
    names = []
    for field, place in PLACES[kind].items():
        for layer, weights in enumerate(theirs[field]):
            names.append(place.format(layer))
            (recorded,) = record[names[-1]]
            assert recorded.dtype == torch.float32
            # Against float64 all the way: the layers below have rounded too.
            assert torch.allclose(recorded.double(), weights, rtol=0, atol=2e-6)
            assert recorded.std() > 0.05
    assert sorted(record) == sorted(names)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["Bert", "GPT2", "T5"])
def test_training_with_dropout_is_undisturbed_and_weights_are_clean(kind: str, attention: str) -> None:
    model, call = _model(kind, attention).train(), _call(kind)

    def run() -> list[Tensor]:
        torch.manual_seed(17)
        model.zero_grad()
        output = model(**call)[0]
        output.square().sum().backward()
        return [
            output.detach(),
            torch.rand(3),
            *(p.grad.clone() for p in model.parameters() if p.grad is not None),
        ]

    plain = run()
    with observe(model, observations.Weights()) as record:
        watched = run()
    assert len(plain) > 10
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    for entries in record.values():
        (weights,) = entries
        assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5)


def test_generation_gives_one_entry_a_step() -> None:
    config = transformers.GPT2Config(vocab_size=31, **SIZES["GPT2"])
    model = transformers.GPT2LMHeadModel(config).eval()
    ids = _call("GPT2")["input_ids"]
    mask = torch.ones_like(ids)
    options = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(ids, attention_mask=mask, **options)
    with observe(model, observations.Weights(), modules="transformer.h.1.*") as record:
        generated = model.generate(ids, attention_mask=mask, **options)
    assert torch.equal(generated, expected)
    (name,) = record
    # the prompt first, then one new query against all keys so far
    assert [tuple(w.shape[-2:]) for w in record[name]] == [(N, N), (1, N + 1), (1, N + 2), (1, N + 3)]


def test_modules_are_picked_by_glob() -> None:
    model, call = _model("T5", "sdpa"), _call("T5")
    with torch.no_grad(), observe(model, observations.TopWeights(2), modules="*.EncDecAttention") as record:
        model(**call)
    assert list(record) == [f"decoder.block.{layer}.layer.1.EncDecAttention" for layer in range(2)]
    assert record["decoder.block.0.layer.1.EncDecAttention"][0].values.shape == (B, 3, T, 2)


def test_an_implementation_that_offers_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def opaque(
        module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any
    ) -> tuple[Tensor, None]:
        weights = torch.softmax(query @ key.mT, -1)
        return (weights @ value).transpose(1, 2), None

    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "opaque", opaque)
    model, call = _model("Bert", "sdpa"), _call("Bert")
    model.config._attn_implementation = "opaque"
    expected = r"'encoder.layer.0.attention.self' \(BertSelfAttention\), 'encoder.layer.1.attention.self'"
    with pytest.raises(ValueError, match=expected), observe(model, observations.Weights()):
        model(**call)


def test_recorded_weights_explain_the_output_of_the_first_layer() -> None:
    model, call = _model("Bert", "sdpa"), _call("Bert")
    attention = model.encoder.layer[0].attention.self
    with torch.no_grad(), observe(model, observations.Weights()) as record:
        model(**call)
        hidden = model.embeddings(call["input_ids"])
    query, key = (
        layer(hidden).double().reshape(B, N, 3, 4).transpose(1, 2)
        for layer in (attention.query, attention.key)
    )
    hidden_keys = call["attention_mask"][:, None, None] == 0
    scores = (query @ key.mT / 2).masked_fill(hidden_keys, -torch.inf)  # width of a head 4
    assert close(
        record["encoder.layer.0.attention.self"][0], scores.exp() / scores.exp().sum(-1, keepdim=True)
    )
