"""JoeyNMT's side of `translation.py`, run by the Python of its own environment with a job as JSON.

It runs JoeyNMT's own training loop and its own `predict`; all that is added counts and watches the clock. One
patch: sentencepiece has no `SetVocabulary` any more, and with a vocabulary of exactly the model's pieces, as
here, it would restrict nothing.
"""

import copy
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sentencepiece  # type: ignore[import-not-found, unused-ignore]
from joeynmt import training  # type: ignore[import-not-found, unused-ignore]
from joeynmt.config import load_config, parse_global_args  # type: ignore[import-not-found, unused-ignore]
from joeynmt.helpers import make_model_dir  # type: ignore[import-not-found, unused-ignore]
from joeynmt.prediction import predict, prepare  # type: ignore[import-not-found, unused-ignore]

from translation_turns import Gate, Stopwatch, Turns, peak_mib

REPORT_EVERY = 30.0  # seconds
WARM_UP_LINES = 64  # a batch


def learn(job: dict[str, Any], turns: Turns) -> None:
    """One vocabulary of both languages, from the raw text, and the list of its pieces."""
    texts = [Path(path).read_text("utf-8").split("\n") for path in job["texts"]]
    model = Path(job["model"])
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.strip() for text in texts for line in text),
        model_prefix=str(model.with_suffix("")),
        model_type="bpe",
        vocab_size=job["vocab_size"],
        character_coverage=1.0,
        num_threads=1,
        unk_id=0,
        pad_id=1,
        bos_id=2,
        eos_id=3,
        pad_piece="<pad>",
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    listed = "".join(f"{pieces.id_to_piece(number)}\n" for number in range(pieces.get_piece_size()))
    Path(job["pieces"]).write_text(listed, encoding="utf-8")
    turns.tell(pieces=pieces.get_piece_size())


def _run_training(config: dict[str, Any], before: Callable[[int, int, Any], None]) -> None:
    """JoeyNMT's own training; before each update `before` gets its target tokens, its pairs and the model."""
    step = training.TrainManager._train_step

    def watched(manager: Any, batch: Any) -> Any:
        before(int(batch.ntokens), int(batch.nseqs), manager.model)
        return step(manager, batch)

    training.TrainManager._train_step = watched
    make_model_dir(Path(config["model_dir"]), overwrite=True)
    training.train(rank=0, world_size=None, cfg=config, skip_test=True)


def train(job: dict[str, Any], turns: Turns) -> None:
    """Train for a number of seconds; JoeyNMT saves its checkpoint when it is interrupted."""
    clock = {"started": 0.0, "told": 0.0}
    done = {"updates": 0, "tokens": 0}

    def before(tokens: int, _pairs: int, _model: Any) -> None:
        now = time.perf_counter()
        if not done["updates"]:
            clock.update(started=now, told=now)
        seconds = now - clock["started"]
        over = seconds >= job["seconds"]
        if over or now - clock["told"] >= REPORT_EVERY:
            clock["told"] = now
            turns.tell(seconds=seconds, **done)
        if over:
            raise KeyboardInterrupt  # between two updates; its loop catches it
        done["updates"] += 1
        done["tokens"] += tokens

    _run_training(_config(job), before)
    turns.tell(done=True, peak_mib=peak_mib())


def speed(job: dict[str, Any], turns: Turns) -> None:
    """Train in turns."""
    _run_training(_config(job), Gate(turns, job["warm_up"], job["updates"]))


def decode(job: dict[str, Any], turns: Turns) -> None:
    """Translate the test set in turns, as `testing` in the configuration says."""
    config = _config(job)
    config["testing"]["load_model"] = str(Path(config["model_dir"]) / "latest.ckpt")
    settings = parse_global_args(config, rank=0, mode="test")
    model, _, _, test = prepare(settings, rank=0, mode="test")

    def translate(count: int) -> list[str]:
        part = copy.copy(test)
        part.data = {language: lines[:count] for language, lines in test.data.items()}
        part.reset_indices()
        _, _, hypotheses, _, _, _ = predict(
            model, part, settings.device, settings.n_gpu, args=settings.test, autocast=settings.autocast
        )
        return list(hypotheses)

    translate(min(WARM_UP_LINES, job["lines"]))
    turns.tell(parameters=sum(each.numel() for each in model.parameters()))
    while True:
        turns.wait()
        watch = Stopwatch()
        hypotheses = translate(job["lines"])
        turns.tell(**watch.read(), hypotheses=hypotheses, peak_mib=peak_mib())


def _config(job: dict[str, Any]) -> dict[str, Any]:
    return {**load_config(job["config"]), "model_dir": job["model_dir"]}


def main() -> None:
    if not hasattr(sentencepiece.SentencePieceProcessor, "SetVocabulary"):
        sentencepiece.SentencePieceProcessor.SetVocabulary = lambda _self, _pieces: None
    job = json.loads(sys.argv[1])
    works = {"learn": learn, "train": train, "speed": speed, "decode": decode}
    works[job["work"]](job, Turns())


if __name__ == "__main__":
    main()
