"""The most memory that a call holds beyond what there was before it."""

import gc
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
"""Environment under which glibc gives freed memory back at once. Without it, what a warm-up call left in the
heap serves the measured call and does not show."""


def how_measured(device: torch.device) -> str:
    """Say in a few words how `peak_of` measures here.

    Args:
        device: Where the calls compute.

    Returns:
        The words, for the report.
    """
    if device.type == "cuda":
        return "torch.cuda.max_memory_allocated above what was allocated before the call"
    if can_reset():
        return "VmHWM, reset after a warm-up call, above the resident memory before the call"
    if sys.platform == "win32":
        return "not measured on Windows"
    return "growth of ru_maxrss in the first call, no warm-up: this system cannot reset the peak"


def peak_of(call: Callable[[], Any], device: torch.device, *, warm: bool = True) -> int | None:
    """Measure the most memory that a call holds beyond what there is before it.

    Make sense of it in a fresh process only, started with `RETURN_MEMORY` in its environment.

    Args:
        call: What to run; its inputs exist already.
        device: Where it computes.
        warm: Whether to run it once before, which loads kernels and compiles. Default: yes.

    Returns:
        Bytes, or None where the system tells nothing.
    """
    if device.type == "cuda":
        return _peak_cuda(call, device, warm)
    if not can_reset():
        return _peak_ever(call)
    if warm:
        call()
    gc.collect()
    _CLEAR.write_text("5")  # sets VmHWM back to what is resident now
    before = _kilobytes("VmRSS")
    call()
    return max(_kilobytes("VmHWM") - before, 0) * 1024


def _peak_cuda(call: Callable[[], Any], device: torch.device, warm: bool) -> int:
    if warm:
        call()
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def _peak_ever(call: Callable[[], Any]) -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit


def can_reset() -> bool:
    """Tell whether the system lets a process set its peak back, so that it can measure more than once."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return _STATUS.is_file()


def _kilobytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])
