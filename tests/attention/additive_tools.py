"""What tests of additive scores share: the formula in float64, leaves, and a process without kernels."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from headlights.attention import _compiled

needs_compiler = pytest.mark.skipif(_compiled._compiler() is None, reason="no C++ compiler")


def fresh(monkeypatch: pytest.MonkeyPatch, cache: Path) -> _compiled._Loader:
    """A process that has compiled nothing yet, with a cache folder of its own."""
    for name in ("HEADLIGHTS_COMPILE", "TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(_compiled, "_loader", loader := _compiled._Loader())
    return loader


def exact(query: Tensor, key: Tensor, b: Tensor) -> Tensor:
    hidden = torch.tanh(query.double()[..., :, None, :] + key.double()[..., None, :, :])
    return hidden @ b.double()


def leaves(*sizes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [torch.randn(size, dtype=dtype).requires_grad_() for size in sizes]
