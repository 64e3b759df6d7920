"""A translation task small enough to train in a second, and what tests do with its runs."""

import json
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any

import torch

from headlights.translation.architectures import ModelConfig, TransformerConfig
from headlights.translation.folders import ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.recipe import Recipe, check_recipe
from headlights.translation.tokenizer import Tokenizer

_WORDS = {"red": "rosso", "old": "vecchio", "cat": "gatto", "dog": "cane", "runs": "corre", "eats": "mangia"}


def write_pairs(path: Path, count: int, *, skip: int = 0) -> Path:
    """Distinct pairs of two to four words, translated word by word, as TSV."""
    sentences = [words for size in (2, 3, 4) for words in product(_WORDS, repeat=size)]
    chosen = sentences[skip :: max(1, len(sentences) // (count + skip))][:count]
    lines = [f"{' '.join(words)}\t{' '.join(map(_WORDS.__getitem__, words))}\n" for words in chosen]
    assert len(lines) == count
    path.write_text("".join(lines), encoding="utf-8")
    return path


def toy_content(folder: Path, **training: Any) -> dict[str, Any]:
    """The content of a recipe over pairs that it writes into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    train = write_pairs(folder / "train.tsv", 199)
    valid = write_pairs(folder / "valid.tsv", 7, skip=3)
    return {
        "data": {"train": [str(train)], "valid": [str(valid)]},
        "tokenizer": {"kind": "word", "vocab_size": 40},
        "model": {"embed_dim": 8, "hidden_dim": 12, "encoder_dim": 6, "score_dim": 8, "dropout": 0.2},
        "training": {
            "max_updates": 24,
            "batch_tokens": 100,
            "warmup_updates": 5,
            "validations": 3,
            "learning_rate": 1e-2,
            **training,
        },
    }


def toy_recipe(folder: Path, **training: Any) -> Recipe:
    """A recipe over pairs that it writes into `folder`."""
    return check_recipe(toy_content(folder, **training), "toy")


def many_heads(*, unknown: float = 0.0) -> ModelFolder:
    """An untrained Transformer, 2 layers of 3 heads that look elsewhere, with so much more logit for unk."""
    folder = untrained(TransformerConfig(layers=2, heads=3, embed_dim=6, feedforward_dim=7))
    unk_id = folder.target_tokenizer.unk_id
    assert unk_id is not None
    with torch.no_grad():
        for name, parameter in folder.model.named_parameters():
            if name.endswith("source_attention.in_proj_weight"):
                parameter.mul_(5.0)  # as they come, heads look everywhere alike
        folder.model.decoder.output.bias[unk_id] += unknown
    return folder


def untrained(config: ModelConfig) -> ModelFolder:
    """A model over the toy words."""
    source, target = (
        Tokenizer.train([" ".join(side)], kind="word", vocab_size=40)
        for side in zip(*_WORDS.items(), strict=True)
    )
    torch.manual_seed(5)
    return ModelFolder(TranslationModel(config, source.vocab_size, target.vocab_size), source, target, {})


def fingerprint(run: Path) -> dict[str, Any]:
    """What must be the same after a run in one piece and in several: models, state, log; times left out."""
    timed = {"seconds", "tokens_per_second"}
    found: dict[str, Any] = {
        f"{folder}/{name}": sha256((run / folder / name).read_bytes()).hexdigest()
        for folder in ("best", "last", "resume")
        for name in ("model.safetensors", "config.json")
    }
    found["optimizer"] = sha256((run / "resume" / "optimizer.safetensors").read_bytes()).hexdigest()
    records = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    records += [json.loads((run / name).read_text("utf-8")) for name in ("resume/state.json",)]
    records += [json.loads((run / name / "training.json").read_text("utf-8")) for name in ("best", "last")]
    found["records"] = [{k: v for k, v in record.items() if k not in timed} for record in records]
    found["names"] = sorted(str(path.relative_to(run)) for path in run.rglob("*"))
    return found
