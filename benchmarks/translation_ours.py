"""Our side of `translation.py`, run in a process of its own with a job as JSON.

It runs `headlights.translation.training.train` and `Translator.translate` as they are; all that is added
counts, and keeps models on the way.
"""

import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from headlights.cli.allocator import keep_freed_memory
from headlights.translation import trainer
from headlights.translation.batches import Batch
from headlights.translation.evaluation import bleu
from headlights.translation.progress import Reporter
from headlights.translation.runs import RunFolder
from headlights.translation.training import Interrupted
from headlights.translation.training import train as train_translator
from headlights.translation.translator import Translator
from headlights.translation.updates import Updated, Updater
from translation_report import WITHIN
from translation_turns import Gate, Stopwatch, Turns, peak_mib

FAR_BELOW = 5.0  # BLEU; a model whose greedy validation is so far off the mark is not worth a test
WARM_UP_LINES = 64


class Keeper(Reporter):
    """Keeps a model of every validation, tests it, and ends the training when one is good enough.

    Args:
        job: Where to keep them, the test set and the BLEU to come near to.
        turns: Told of every model.
    """

    def __init__(self, job: dict[str, Any], turns: Turns) -> None:
        self._run, self._kept = RunFolder(Path(job["out"])), Path(job["kept"])
        self._sources, self._references = (_lines(job[side]) for side in ("sources", "references"))
        self._wanted: float | None = job["until_bleu"]
        self._turns = turns

    def validation(self, *, number: int, bleu: float, **_told: Any) -> None:
        folder = self._kept / f"{number:06}"
        if folder.exists():
            shutil.rmtree(folder)
        shutil.copytree(self._run.last, folder)
        training = json.loads((folder / "training.json").read_text("utf-8"))
        wanted, tested = self._wanted, None
        if wanted is None or bleu >= wanted - FAR_BELOW:
            tested = self._test(folder)
        found = {
            "update": number,
            "seconds": training["seconds"],
            "validation_bleu": round(bleu, 2),
            "bleu": tested,
        }
        (folder / "test.json").write_text(json.dumps(found), encoding="utf-8")
        self._turns.tell(**found)
        if wanted is not None and tested is not None and tested >= wanted - WITHIN:
            os.kill(os.getpid(), signal.SIGTERM)  # as a user would: the training saves itself and ends

    def _test(self, folder: Path) -> float:
        translations = Translator.load(folder).translate(self._sources, beam=5)
        return bleu([each.text for each in translations], self._references)


def train(job: dict[str, Any], turns: Turns) -> None:
    """Train, or go on, until a model is good enough or the time is over."""
    resume = RunFolder(Path(job["out"])).can_resume()
    with suppress(Interrupted):
        train_translator(job["recipe"], out=job["out"], resume=resume, reporter=Keeper(job, turns))
    turns.tell(done=True, peak_mib=peak_mib())


def speed(job: dict[str, Any], turns: Turns) -> None:
    """Train in turns; nothing is validated or saved on the way."""
    gate, update = Gate(turns, job["warm_up"], job["updates"]), Updater.update

    def watched(updater: Updater, batches: Sequence[Batch], number: int, done: float) -> Updated:
        tokens = sum(int(batch.target_lengths.sum()) for batch in batches)
        gate(tokens, sum(len(batch.indices) for batch in batches), updater.model)
        return update(updater, batches, number, done)

    Updater.update = watched  # type: ignore[assignment, method-assign]
    trainer.SAVE_EVERY = math.inf
    train_translator(job["recipe"], out=job["out"], reporter=Reporter())


def decode(job: dict[str, Any], turns: Turns) -> None:
    """Translate the test set in turns, with threads and memory as the command has them."""
    keep_freed_memory()
    dtype = getattr(torch, job.get("dtype", "float32"))
    translator, lines = Translator.load(job["model"], dtype=dtype), _lines(job["sources"])[: job["lines"]]
    # As the other does: no attention is kept, and a sentence ends when the whole beam has.
    options: dict[str, Any] = {"beam": 5, "patience": 1.0, "alignment": False}
    options["workers"] = torch.get_num_threads()
    translator.translate(lines[:WARM_UP_LINES], **options)
    turns.tell(parameters=sum(each.numel() for each in translator.model.parameters()))
    while True:
        turns.wait()
        watch = Stopwatch()
        hypotheses = [each.text for each in translator.translate(lines, **options)]
        turns.tell(**watch.read(), hypotheses=hypotheses, peak_mib=peak_mib())


def _lines(path: str) -> list[str]:
    with Path(path).open(encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def main() -> None:
    job = json.loads(sys.argv[1])
    works = {"train": train, "speed": speed, "decode": decode}
    works[job["work"]](job, Turns())


if __name__ == "__main__":
    main()
