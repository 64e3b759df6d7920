"""The mean of a model's parameters along its training: often a better model than the last one."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_NAME = "average"


class Average:
    """A running mean of parameters, which looks back over a number of updates.

    After update n the new parameters get a share of 1 / `updates`, or of 10 / (10 + n) while that is more, so
    that the beginning is soon forgotten. Published translators average their last checkpoints (Vaswani et
    al. 2017, arXiv:1706.03762, 6.1: of 5; Wu et al. 2021, arXiv:2105.14462: of 10). This is the same with a
    share that fades, which needs one copy of the model instead of ten; it is as old as the even mean of twice
    as many updates.

    The mean is kept in the optimiser's state, beside its moments: it is saved and taken up with them.

    Args:
        optimizer: Its parameters are averaged.
        updates: How far to look back, in updates, 1 or more.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, updates: int) -> None:
        self._optimizer, self._updates = optimizer, updates

    def _parameters(self) -> list[Tensor]:
        """Those that have had an update, and so have a state."""
        groups = self._optimizer.param_groups
        return [each for group in groups for each in group["params"] if self._optimizer.state.get(each)]

    @torch.no_grad()
    def add(self, number: int) -> None:
        """Count the parameters as they are now.

        Args:
            number: Of the update that made them, from 1.
        """
        share = max(1.0 / self._updates, 10.0 / (10.0 + number))
        means, values = [], []
        for parameter in self._parameters():
            state = self._optimizer.state[parameter]
            if _NAME in state:
                means.append(state[_NAME])
                values.append(parameter.detach())
            else:
                state[_NAME] = parameter.detach().clone()
        if means:
            torch._foreach_lerp_(means, values, share)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Give the model its mean parameters inside the block, and its own ones back after it.

        Yields:
            Nothing.
        """
        parameters = [each for each in self._parameters() if _NAME in self._optimizer.state[each]]
        own = [each.detach().clone() for each in parameters]
        with torch.no_grad():
            for parameter in parameters:
                parameter.copy_(self._optimizer.state[parameter][_NAME])
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in zip(parameters, own, strict=True):
                    parameter.copy_(value)


def forget_average(optimizer: torch.optim.Optimizer) -> None:
    """Take an average out of an optimiser's state: a run that went on without one must not keep it.

    Args:
        optimizer: As it was taken up.
    """
    for state in optimizer.state.values():
        state.pop(_NAME, None)
