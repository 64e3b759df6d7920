"""Updates: from batches to new parameters."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headlights.translation.averaging import Average, forget_average
from headlights.translation.batches import Batch
from headlights.translation.model import TranslationModel
from headlights.translation.processes import Processes
from headlights.translation.rates import learning_rate
from headlights.translation.recipe import Recipe


class Updated(NamedTuple):
    """What an update was made of.

    Attributes:
        cross_entropy: Summed over its target tokens, in nats.
        tokens: Target tokens, end marks included.
    """

    cross_entropy: float
    tokens: int


class Diverged(ArithmeticError):  # noqa: N818 - it says what happened
    """An update would not be a number; the parameters are as before it.

    Attributes:
        what: What is no number, and its value.
        batch: Place in the update of the batch it came from; None: not known, of all.

    Args:
        what: What is no number, and its value.
        batch: Place in the update of the batch it came from; None: not known, of all.
    """

    def __init__(self, what: str, batch: int | None) -> None:
        super().__init__(what)
        self.what, self.batch = what, batch


class Updater:
    """An optimiser over a model, the schedule of its rate, and the mean of its parameters if there is one.

    Args:
        recipe: How to train.
        model: What to train, on the device where it is trained.
        processes: Who trains it together. Default: this process alone.
    """

    def __init__(self, recipe: Recipe, model: TranslationModel, processes: Processes | None = None) -> None:
        self.config, self.forcing, self.model = recipe.training, recipe.forcing, model
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=0.0, betas=(0.9, 0.98), weight_decay=self.config.weight_decay, fused=True
        )
        device = next(model.parameters()).device
        self.processes = processes or Processes(device)
        self._loss = self.processes.loss_of(model)
        self._autocast = partial(
            torch.autocast, device.type, torch.bfloat16, enabled=self.config.precision == "bf16"
        )
        self.average = Average(self.optimizer, self.config.average) if self.config.average else None

    def taken_up(self) -> None:
        """Make what was loaded into the optimiser that of this recipe."""
        if self.average is None:
            forget_average(self.optimizer)

    @property
    def rate(self) -> float:
        """The learning rate of the last update."""
        return float(self.optimizer.param_groups[0]["lr"])

    def update(self, batches: Sequence[Batch], number: int, done: float) -> Updated:
        """One step of the optimiser, by the mean gradient of all target tokens.

        Args:
            batches: On the model's device, at least one, the same in all processes; the gradients of each
                are added up.
            number: Of the update, from 0.
            done: Share of the training that is done, in 0..1.

        Returns:
            Loss and size.

        Raises:
            Diverged: A loss or the gradient is not a number.
        """
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, number, done)
        tokens = int(sum(int(batch.target_lengths.sum()) for batch in batches))
        losses = []
        for batch in batches:
            last = batch is batches[-1]
            with nullcontext() if last else self.processes.without_sum(self._loss):
                losses.append(self._backward(batch, number, tokens))
        cross_entropies = self.processes.sum(torch.stack(losses)).tolist()  # waits for the device once
        for place, value in enumerate(cross_entropies):
            if not math.isfinite(value):
                raise self._diverged(f"the loss of update {number + 1} is {value}", place)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip))
        if not math.isfinite(norm):
            raise self._diverged(f"the gradient of update {number + 1} is {norm}", None)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.add(number + 1)
        return Updated(sum(cross_entropies), tokens)

    def _backward(self, batch: Batch, number: int, tokens: int) -> Tensor:
        """Add the gradient of this process's share of a batch; its summed cross-entropy."""
        batch = self.processes.share(batch, pad_id=self.model.pad_id)
        forcing = self.forcing.draw(batch.target_in, number, seed=self.config.seed)
        with self._autocast():
            loss = self._loss(
                batch,
                label_smoothing=self.config.label_smoothing,
                coverage=self.config.coverage,
                forcing=forcing,
            )
        summed = loss.smoothed if self.processes.count == 1 else loss.smoothed * self.processes.count
        torch.autograd.backward(summed / tokens)  # several processes take the mean of their gradients
        cross_entropy: Tensor = loss.cross_entropy
        return cross_entropy

    def _diverged(self, what: str, batch: int | None) -> Diverged:
        self.optimizer.zero_grad()
        return Diverged(what, batch)
