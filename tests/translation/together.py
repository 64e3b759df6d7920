"""Trains a recipe and writes what each update cost; run as a program, in one process or several.

Under `torchrun` or `accelerate launch` every process does the same, and the first one writes.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headlights.translation.progress import Reporter
from headlights.translation.recipe import load_recipe
from headlights.translation.training import train
from headlights.translation.updates import Updated, Updater


def losses_of(folder: Path, out: Path) -> list[float]:
    """Train `folder`/toy.toml into `out`: nats per token of each update."""
    torch.set_num_threads(1)
    losses: list[float] = []
    update = Updater.update

    def noted(self: Updater, batches: Sequence[Any], number: int, done: float) -> Updated:
        found = update(self, batches, number, done)
        losses.append(found.cross_entropy / found.tokens)
        return found

    setattr(Updater, "update", noted)  # noqa: B010 - a method is not to be assigned to, says mypy
    try:
        translator = train(
            load_recipe(folder / "toy.toml"), out=out, resume=out.exists(), device="cpu", reporter=Reporter()
        )
    finally:
        setattr(Updater, "update", update)  # noqa: B010
    assert translator.translate(["red cat"])[0].text
    return losses


if __name__ == "__main__":
    from headlights.cli import leave
    from headlights.translation.processes import is_main

    found = losses_of(Path(sys.argv[1]), Path(sys.argv[2]))
    if is_main():
        Path(sys.argv[3]).write_text(json.dumps(found))
    leave(0)
