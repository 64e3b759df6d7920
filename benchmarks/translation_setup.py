"""What `translation.py` needs to measure: the text, JoeyNMT's environment, and the sizes of both sides."""

import gzip
import importlib.metadata
import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translation_report import OURS, PEER
from translation_turns import Worker

ROOT = Path(__file__).resolve().parents[1]
PEER_VERSION = "2.3.0"
VOCABULARY = 6000
BATCH_TOKENS = 2048
SPLITS = ("train", "val", "test_2016_flickr")
LANGUAGES = ("de", "en")
RATES = {"rnn": (1e-3, 200), "transformer": (1e-3, 400)}  # the highest, and the updates that lead up to it
MODELS: dict[str, dict[str, Any]] = {
    "rnn": {
        "architecture": "recurrent",
        "embed_dim": 256,
        "hidden_dim": 512,
        "encoder_dim": 256,
        "score": "additive",
        "score_dim": 512,
        "query": "current",
        "mix": "concat",
        "input_feeding": True,
        "dropout": 0.3,
    },
    "transformer": {
        "architecture": "transformer",
        "layers": 3,
        "embed_dim": 256,
        "heads": 4,
        "feedforward_dim": 1024,
        "norm": "pre",
        "tie": "all",
        "dropout": 0.2,
        "attention_dropout": 0.2,
    },
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    # The output layer reads vectors of the embeddings' width in ours, of the state's in JoeyNMT's.
    "rnn": (f"{OURS}, embeddings of 512", {"embed_dim": 512}),
    "transformer": (f"{OURS}, weights not dropped", {"attention_dropout": 0.0}),
}


@dataclass(frozen=True)
class Places:
    """Where everything is.

    Attributes:
        data: Folder of the packed text.
        work: Folder of all that is made.
    """

    data: Path
    work: Path

    @property
    def python(self) -> Path:
        """JoeyNMT's Python."""
        return self.work / "peer" / "bin" / "python"

    @property
    def pieces(self) -> Path:
        """What JoeyNMT's joint vocabulary holds, one a line."""
        return self.work / "pieces.txt"

    @property
    def sentencepiece(self) -> Path:
        """The model that cuts its text into them."""
        return self.work / "sentencepiece.model"

    def text(self, split: str, language: str) -> Path:
        """A file of plain text."""
        return self.work / "data" / f"{split}.{language}"

    def packed(self, split: str, language: str) -> Path:
        """A file of the corpus as it is shipped."""
        return self.data / f"{split}.{language}.gz"

    def of(self, model: str, name: str) -> Path:
        """A file or folder of one of the two models."""
        return self.work / model / name

    def peer(self, job: dict[str, Any], *, threads: int, log: str) -> Worker:
        """Start JoeyNMT's side; one clear line if it is not there."""
        self.check_peer()
        path = self.work / "logs" / f"{log}.log"
        return Worker(str(self.python), "translation_peer.py", job, threads=threads, log=path)

    def ours(self, job: dict[str, Any], *, threads: int, log: str) -> Worker:
        """Start our side, from this checkout."""
        path, source = self.work / "logs" / f"{log}.log", str(ROOT / "src")
        return Worker(sys.executable, "translation_ours.py", job, threads=threads, log=path, source=source)

    def check_peer(self) -> None:
        """Refuse to go on without JoeyNMT."""
        if not (self.installed() and self.pieces.exists()):
            raise SystemExit(
                f"{PEER} {PEER_VERSION} is not ready in {self.work}; run: "
                f"python benchmarks/translation.py setup --data {self.data} --work {self.work}"
            )

    def installed(self) -> bool:
        """Whether its packages are there."""
        return any((self.work / "peer").glob(f"lib/*/site-packages/joeynmt-{PEER_VERSION}.dist-info"))


def set_up(places: Places) -> None:
    """The text unpacked, JoeyNMT installed, its vocabulary learned and its configurations written."""
    for split in SPLITS:
        for language in LANGUAGES:
            _unpack(places.packed(split, language), places.text(split, language))
    if not places.installed():
        _install(places)
    if not places.pieces.exists():
        job = {
            "work": "learn",
            "texts": [str(places.text("train", language)) for language in LANGUAGES],
            "vocab_size": VOCABULARY,
            "model": str(places.sentencepiece),
            "pieces": str(places.pieces),
        }
        log = places.work / "logs" / "learn.log"
        with Worker(str(places.python), "translation_peer.py", job, threads=1, log=log) as worker:
            print(f"joint vocabulary: {worker.hear()['pieces']} pieces", flush=True)
    for model in MODELS:
        path = places.of(model, "joeynmt.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(peer_config(places, model), indent=2) + "\n", encoding="utf-8")
        print(f"wrote {path}", flush=True)


def _unpack(packed: Path, plain: Path) -> None:
    if plain.exists():
        return
    if not packed.is_file():
        raise SystemExit(f"{packed} is missing; --data must be a folder with Multi30k's raw text, gzipped")
    plain.parent.mkdir(parents=True, exist_ok=True)
    plain.write_bytes(gzip.decompress(packed.read_bytes()))


def _install(places: Places) -> None:
    """JoeyNMT with the torch that we have, and a package that it imports without asking for it."""
    print(f"installing {PEER} {PEER_VERSION} into {places.work / 'peer'}; minutes", flush=True)
    venv.create(places.work / "peer", with_pip=True)
    torch = importlib.metadata.version("torch").partition("+")[0]
    wanted = [f"torch=={torch}", f"joeynmt=={PEER_VERSION}", "importlib_metadata"]
    subprocess.run([places.python, "-m", "pip", "install", "--quiet", *wanted], check=True)


def our_recipe(places: Places, model: str, **training: Any) -> dict[str, Any]:
    """What we train, as a recipe's content."""
    rate, warm_up = RATES[model]
    return {
        "data": {
            "train": [str(places.packed("train", language)) for language in LANGUAGES],
            "valid": [str(places.packed("val", language)) for language in LANGUAGES],
        },
        "tokenizer": {"kind": "bpe", "vocab_size": VOCABULARY, "joint": True},
        "model": MODELS[model],
        "training": {
            "batch_tokens": BATCH_TOKENS,
            "learning_rate": rate,
            "warmup_updates": warm_up,
            "schedule": "inverse-sqrt",
            "final_rate": 0.0,
            "weight_decay": 0.0,
            "label_smoothing": 0.1,
            "clip": 1.0,
            **training,
        },
    }


def peer_config(places: Places, model: str) -> dict[str, Any]:
    """What JoeyNMT trains, as the content of its configuration; JSON is YAML."""
    ours, (rate, warm_up) = MODELS[model], RATES[model]
    return {
        "name": model,
        "joeynmt_version": PEER_VERSION,
        "model_dir": str(places.of(model, "joeynmt")),
        "use_cuda": False,
        "random_seed": 42,
        "data": _peer_data(places),
        "testing": {
            "beam_size": 5,
            "beam_alpha": 1.0,
            "batch_size": 64,
            "batch_type": "sentence",
            "max_output_length": -1,  # 1.5 times the longest source of the batch, as ours (and 10)
            "eval_metrics": [],
        },
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "normalization": "tokens",
            "scheduling": "warmupinversesquareroot",
            "learning_rate": rate,
            "learning_rate_warmup": warm_up,
            "learning_rate_min": 0.0,
            "clip_grad_norm": 1.0,
            "label_smoothing": 0.1,
            "batch_size": BATCH_TOKENS,
            "batch_type": "token",
            "early_stopping_metric": "loss",
            "epochs": 1000,
            "logging_freq": 50,
            "validation_freq": 50_000_000,  # never
            "shuffle": True,
        },
        "model": _peer_transformer(ours) if model == "transformer" else _peer_rnn(ours),
    }


def _peer_data(places: Places) -> dict[str, Any]:
    side = {
        "level": "bpe",
        "max_length": 100,
        "voc_limit": VOCABULARY,
        "voc_min_freq": 1,
        "voc_file": str(places.pieces),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {
            "model_file": str(places.sentencepiece),
            "model_type": "bpe",
            "pretokenizer": "none",
        },
    }
    source, target = LANGUAGES
    return {
        "train": str(places.work / "data" / SPLITS[0]),
        "dev": str(places.work / "data" / SPLITS[1]),
        "test": str(places.work / "data" / SPLITS[2]),
        "dataset_type": "plain",
        "src": {"lang": source, **side},
        "trg": {"lang": target, **side},
        "special_symbols": {
            **{"unk_token": "<unk>", "unk_id": 0, "pad_token": "<pad>", "pad_id": 1},
            **{"bos_token": "<s>", "bos_id": 2, "eos_token": "</s>", "eos_id": 3},
        },
    }


def _peer_rnn(ours: dict[str, Any]) -> dict[str, Any]:
    embeddings = {"embedding_dim": ours["embed_dim"], "scale": False, "dropout": ours["dropout"]}
    side = {"type": "recurrent", "rnn_type": "gru", "embeddings": embeddings, "num_layers": 1}
    dropout = {"dropout": ours["dropout"]}
    return {
        "initializer": "xavier_uniform",
        "bias_initializer": "zeros",
        "embed_initializer": "normal",
        "embed_init_weight": 0.1,
        "init_rnn_orthogonal": True,
        "tied_embeddings": False,
        "tied_softmax": False,
        "encoder": {**side, **dropout, "hidden_size": ours["encoder_dim"], "bidirectional": True},
        "decoder": {
            **{**side, **dropout, "hidden_dropout": ours["dropout"], "hidden_size": ours["hidden_dim"]},
            **{"input_feeding": ours["input_feeding"], "init_hidden": "bridge", "attention": "bahdanau"},
        },
    }


def _peer_transformer(ours: dict[str, Any]) -> dict[str, Any]:
    stack = {
        "type": "transformer",
        "num_layers": ours["layers"],
        "num_heads": ours["heads"],
        "embeddings": {"embedding_dim": ours["embed_dim"], "scale": True, "dropout": ours["dropout"]},
        "hidden_size": ours["embed_dim"],
        "ff_size": ours["feedforward_dim"],
        "dropout": ours["dropout"],  # of attention weights, too
        "layer_norm": ours["norm"],
        "activation": "relu",
    }
    return {
        "initializer": "xavier_uniform",
        "bias_initializer": "zeros",
        "embed_initializer": "xavier_uniform",
        "tied_embeddings": True,
        "tied_softmax": True,
        "encoder": stack,
        "decoder": stack,
    }
