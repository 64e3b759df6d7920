"""Small random Hugging Face models in folders, with a tokenizer whose words are whole tokens."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Made = Callable[[str], Path]

WORDS = (
    "[PAD]",
    "[UNK]",
    "</s>",
    "the",
    "cat",
    "sleeps",
    "mat",
    "</script>",
    "<img/src=x/onerror=a()>",
    "\u202edet",
)
PAD, UNK, EOS, THE, CAT, SLEEPS = range(6)
POSITIONS = 97
BERT = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 13,
    "max_position_embeddings": POSITIONS,
}
SIZES: dict[str, dict[str, Any]] = {
    "Bert": BERT,
    "Roberta": {**BERT, "pad_token_id": PAD + 1},
    "DistilBert": {
        "dim": 12,
        "n_layers": 2,
        "n_heads": 3,
        "hidden_dim": 13,
        "max_position_embeddings": POSITIONS,
    },
    "Albert": {**BERT, "embedding_size": 8},
    "GPT2": {"n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": POSITIONS},
    "Llama": {**BERT, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2},
    "T5": {
        "d_model": 12,
        "d_kv": 5,
        "d_ff": 13,
        "num_layers": 2,
        "num_heads": 3,
        "decoder_start_token_id": PAD,
    },
    "Marian": {
        "d_model": 12,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 13,
        "decoder_ffn_dim": 13,
        "max_position_embeddings": POSITIONS,
        "pad_token_id": PAD,
        "decoder_start_token_id": PAD,
        "eos_token_id": EOS,
        "forced_eos_token_id": EOS,
    },
    "Mamba": {"hidden_size": 12, "num_hidden_layers": 1, "state_size": 3},
}


def save_model(kind: str, folder: Path, **more: Any) -> Path:
    """Write a random model of a kind and a tokenizer into a folder."""
    import torch
    import transformers

    config = getattr(transformers, f"{kind}Config")(vocab_size=len(WORDS), **SIZES[kind], **more)
    torch.manual_seed(11)
    pair = config.is_encoder_decoder
    family: Any = transformers.AutoModelForSeq2SeqLM if pair else transformers.AutoModel
    model = family.from_config(config)
    if kind != "T5":  # as initialised, the others give all keys nearly the same weight
        for parameter in model.parameters():
            parameter.data.mul_(3)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path, **more: Any) -> None:
    """Write the tokenizer."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "eos_token": "</s>"}
    whole: Any = transformers.PreTrainedTokenizerFast
    whole(tokenizer_object=tokenizer, **special, **more).save_pretrained(folder)


def copied(made: Made, tmp_path: Path, kind: str = "Bert", **config: Any) -> Path:
    """A model folder of its own, with some of its configuration changed."""
    folder = tmp_path / "model"
    shutil.copytree(made(kind), folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder
