"""What a contestant is: something that builds a call on given inputs, or a reason why it stays out."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

Call = Callable[[], tuple[Tensor, ...]]
"""Does the work once and returns what it computed: contestants of one case the same tensors in one order."""


@dataclass(frozen=True)
class Place:
    """Where and in which type to compute.

    Attributes:
        device: The device.
        dtype: Floating type of all inputs and parameters.
    """

    device: torch.device
    dtype: torch.dtype

    def draw(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Draw normal numbers, the same on every device.

        Args:
            *shape: The shape.
            scale: Standard deviation. Default: 1.

        Returns:
            Of this place's device and type.
        """
        return (torch.randn(*shape) * scale).to(device=self.device, dtype=self.dtype)


@dataclass(frozen=True)
class Out:
    """Stands in a contestant's place where it cannot run.

    Attributes:
        reason: A few words for the report.
    """

    reason: str


Build = Callable[[], Call]
Contestants = Mapping[str, Build | Out]


def if_installed(package: str, build: Build) -> Build | Out:
    """The contestant, if its package is there.

    Args:
        package: What is imported.
        build: Builds the call.

    Returns:
        `build`, or why not.
    """
    if importlib.util.find_spec(package) is None:
        return Out(f"{package.replace('_', '-')} is not installed: pip install 'headlights[bench]'")
    return build
