"""The processes that train one model together: each takes a share of every batch."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from headlights._errors import InputError
from headlights.translation.batches import Batch
from headlights.translation.model import Loss, TranslationModel


def is_main() -> bool:
    """Whether this process speaks for all: the only one, or the first of those started together."""
    return int(os.environ.get("RANK", "0")) == 0


class Processes:
    """This process among those that `torchrun` or `accelerate launch` started; alone, it is all of them.

    Several processes hold the same parameters. Each computes the loss of its share of a batch, the gradients
    are added up, and all make the same step: the update is that of one process, to rounding.

    Args:
        device: Where to compute; default: a GPU where there is one, else the CPU.

    Attributes:
        count: How many processes there are.
        rank: Number of this one, from 0; the first writes, validates and speaks.
        device: Where this one computes.

    Raises:
        InputError: The launcher asks for what training does not do.
    """

    def __init__(self, device: str | torch.device | None = None) -> None:
        self.count = int(os.environ.get("WORLD_SIZE", "1"))
        self._check_environment()
        default = "cuda" if torch.cuda.is_available() else "cpu"
        self.rank, self.device, self._accelerator = 0, torch.device(device or default), None
        if self.count > 1:
            from accelerate import Accelerator  # noqa: PLC0415 - slow, and for many processes only

            accelerator: Any = Accelerator(cpu=self.device.type == "cpu", mixed_precision="no")
            self._accelerator, self.device = accelerator, accelerator.device
            self.rank = int(accelerator.process_index)

    @staticmethod
    def _check_environment() -> None:
        if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() in ("1", "true"):
            raise InputError("FSDP is not offered: every process holds the whole model; launch without it")
        if (precision := os.environ.get("ACCELERATE_MIXED_PRECISION", "no")) != "no":
            raise InputError(
                f"mixed precision {precision!r} is not for the launcher to choose; launch without it and set "
                "training.precision in the recipe"
            )

    @property
    def main(self) -> bool:
        """Whether this process is the one that writes, validates and speaks."""
        return self.rank == 0

    def seed(self, seed: int, update: int) -> None:
        """Give every process but the first random numbers of its own, by seed, update and rank.

        Args:
            seed: Of the run.
            update: Updates done.
        """
        if self.rank:
            torch.manual_seed(((seed * 1_000_003 + update) * 1_009 + self.rank) % 2**63)

    def share(self, batch: Batch, *, pad_id: int) -> Batch:
        """The rows of a batch that this process trains on.

        Args:
            batch: The same in every process.
            pad_id: Id of padding.

        Returns:
            Every `count`-th row. Where there is none left, a row whose target is padding alone: it has no
            loss, and a gradient of zero.
        """
        return batch if self.count == 1 else batch.share(self.rank, self.count, pad_id=pad_id)

    def loss_of(self, model: TranslationModel) -> nn.Module:
        """The loss of a model as a module whose gradients are the mean over all processes.

        Args:
            model: On the device of this process.

        Returns:
            A module that is called as `model.loss` is.
        """
        module = _LossOf(model)
        if self._accelerator is None:
            return module
        prepared: nn.Module = self._accelerator.prepare_model(module)
        return prepared

    def without_sum(self, module: nn.Module) -> AbstractContextManager[Any]:
        """Inside this block gradients stay with each process, to be added up by a later batch.

        Args:
            module: From `loss_of`.

        Returns:
            The block.
        """
        if self._accelerator is None:
            return nullcontext()
        block: AbstractContextManager[Any] = self._accelerator.no_sync(module)
        return block

    def sum(self, values: Tensor) -> Tensor:
        """Sums over all processes.

        Args:
            values: Of this process, on its device, of the same shape in all.

        Returns:
            The sums, the same in all.
        """
        if self._accelerator is None:
            return values
        total: Tensor = self._accelerator.reduce(values, "sum")
        return total

    def from_main(self, values: Sequence[float]) -> list[float]:
        """Numbers as the first process knows them; all wait for it.

        Args:
            values: Of this process, as many in all; those of others than the first are dropped.

        Returns:
            Those of the first.
        """
        if self._accelerator is None:
            return list(values)
        own = torch.tensor(values, dtype=torch.float64, device=self.device)
        found: list[float] = self.sum(own if self.main else torch.zeros_like(own)).tolist()
        return found

    @torch.no_grad()
    def copy_from_main(self, model: nn.Module) -> None:
        """Make the parameters of a model those that it has in the first process.

        Args:
            model: The same but for its parameters, on the device of each process.
        """
        if self._accelerator is not None:
            for parameter in model.parameters():
                torch.distributed.broadcast(parameter, src=0)

    def wait(self) -> None:
        """Wait until every process is here."""
        if self._accelerator is not None:
            self._accelerator.wait_for_everyone()


class _LossOf(nn.Module):
    """`model.loss` as a forward, which is what wrappers of modules wrap."""

    def __init__(self, model: TranslationModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch, **options: Any) -> Loss:
        return self.model.loss(batch, **options)
