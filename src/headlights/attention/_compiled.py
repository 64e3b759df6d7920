"""The C++ kernels of additive scores: compiled once there is work enough, kept on disk, loaded by ctypes.

Compiling takes a second or two, so it waits until the slower kernels have spent about as long. What was
compiled lies in the user's cache folder, and later processes load it at their first call.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

TERMS_BEFORE_COMPILING = 2**31
"""Terms of sums (B N M A) that the kernels without a compiler get through in about the time of compiling."""
TERMS_OF_A_THREAD = 2**19
"""With fewer terms for each thread, waking it costs more than it saves."""

_SOURCE = Path(__file__).with_name("_additive.cpp")
_FLAGS = "-std=c++17 -O3 -fPIC -fno-math-errno -fno-trapping-math"
_OPTIONS = tuple(
    f"{parallel} {machine}".strip()
    for parallel in ("-fopenmp", "-fopenmp-simd")
    for machine in ("-march=native -mprefer-vector-width=512", "-march=native", "")
)
"""Tried in order, since not every compiler knows them, nor every torch brings OpenMP."""
_NAMES = {torch.float32: "float", torch.float64: "double"}


class Kernels:
    """The compiled functions, for dense float32 and float64 tensors in the memory of a CPU.

    Args:
        library: The shared library.

    Raises:
        OSError: It cannot be loaded.
    """

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._functions = {}
        for name, tensors in (("forward", 4), ("backward", 7)):
            for dtype, suffix in _NAMES.items():
                function = getattr(loaded, f"{name}_{suffix}")
                function.argtypes = [ctypes.c_void_p] * tensors + [ctypes.c_int64] * 5
                function.restype = None
                self._functions[name, dtype] = function

    def forward(self, query: Tensor, key: Tensor, b: Tensor) -> Tensor:
        """Compute the scores.

        Args:
            query: e^(2q), shape (B, N, A).
            key: e^(2k), shape (B, M, A).
            b: Shape (A,).

        Returns:
            Shape (B, N, M).
        """
        scores = query.new_empty(*query.shape[:2], key.shape[1])
        self._call("forward", query, key, b, scores)
        return scores

    def backward(
        self, grad: Tensor, query: Tensor, key: Tensor, b: Tensor, needs: Sequence[bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute the gradients of q, k and b.

        Args:
            grad: Gradient of the scores, shape (B, N, M).
            query: As in `forward`.
            key: As in `forward`.
            b: As in `forward`.
            needs: Which of the three are needed.

        Returns:
            The gradients, None where not needed.
        """
        grads = tuple(map(torch.empty_like, (query, key, b)))  # computed in one pass, whichever are needed
        self._call("backward", query, key, b, grad, *grads)
        query_grad, key_grad, b_grad = (
            one if is_needed else None for one, is_needed in zip(grads, needs, strict=True)
        )
        return query_grad, key_grad, b_grad

    def _call(self, name: str, query: Tensor, key: Tensor, *others: Tensor) -> None:
        (B, N, A), M = query.shape, key.shape[1]
        threads = min(torch.get_num_threads(), B * N * M * A // TERMS_OF_A_THREAD, B * N, B * M)
        pointers = [tensor.data_ptr() for tensor in (query, key, *others)]
        self._functions[name, query.dtype](*pointers, B, N, M, A, max(threads, 1))


class _Loader:
    """Brings the kernels once for a process, or finds out that it cannot."""

    def __init__(self) -> None:
        self.kernels: Kernels | None = None
        self.terms = 0
        self._has_looked = self._has_tried = False
        self._lock = threading.Lock()

    def after(self, terms: int) -> Kernels | None:
        """Count work and return the kernels, if they are there or if it is time to compile them."""
        if self.kernels is not None or self._has_tried:
            return self.kernels
        if not self._has_looked:
            self._look()
        self.terms += terms
        return self.kernels if self.terms < TERMS_BEFORE_COMPILING else self.bring()

    def bring(self) -> Kernels | None:
        """Return the kernels, compiled if they must be; None where they cannot be."""
        with self._lock:
            self._look()
            if self.kernels is None and not self._has_tried and _is_allowed():
                self.kernels = _compile(_cached())
            self._has_tried = True
        return self.kernels

    def _look(self) -> None:
        self._has_looked = True
        if self.kernels is None and _is_allowed():
            with contextlib.suppress(OSError, AttributeError):  # not there, torn, or another library
                cached = _cached()
                self.kernels = Kernels(cached) if _is_trusted(cached) else None


def _is_allowed() -> bool:
    off = os.environ.get("HEADLIGHTS_COMPILE") == "0"
    return not off and "1" not in map(os.environ.get, ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"))


def _cached() -> Path:
    """Where the library for this source, this machine and this version lies, or will."""
    facts = [_SOURCE.read_text("utf-8"), _FLAGS, platform.system(), platform.machine()]
    with contextlib.suppress(OSError):  # only Linux has it; a home may be shared by machines of many kinds
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        facts += sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # as its specification says; code would come from any folder
        folder = os.path.expanduser("~/.cache")
    return Path(folder, "headlights", f"additive-{name}.so")


def _is_trusted(library: Path) -> bool:
    """Tell whether nobody but this user and root could have put a library where it lies."""
    if not hasattr(os, "geteuid"):  # Windows, where a home is its owner's
        return True
    found = [path.stat() for path in (library, library.parent)]
    return all(stat.st_uid in (0, os.geteuid()) and not stat.st_mode & 0o022 for stat in found)


def _compile(goal: Path) -> Kernels | None:
    """Compile, load and, if the folder lets us, keep the library at `goal`."""
    compiler = _compiler()
    if compiler is None:
        return None
    message = ""
    with tempfile.TemporaryDirectory(prefix="headlights-") as folder:
        library, compiled = Path(folder, goal.name), Path(folder, "additive.o")
        for options in _OPTIONS:
            flags = [*_FLAGS.split(), *options.split()]
            try:
                _run([*compiler, *flags, "-c", str(_SOURCE), "-o", str(compiled)])
                # Not linked with OpenMP: its functions are those that torch has loaded. Threads of a second
                # OpenMP would find the cores taken by torch's, which wait for work without sleeping.
                _run([*compiler, "-shared", str(compiled), "-o", str(library)])
                kernels = Kernels(library)
            except subprocess.CalledProcessError as error:
                message = (error.stderr.strip().splitlines() or ["no message"])[0]
            except OSError as error:
                message = str(error)
            else:
                _keep(library, goal)
                return kernels
    warnings.warn(
        f"additive scores: {compiler[0]} could not compile the fast kernels ({message}); the slower ones "
        "serve. HEADLIGHTS_COMPILE=0 stops the attempt",
        stacklevel=2,
    )
    return None


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def _compiler() -> list[str] | None:
    chosen = os.environ.get("CXX", "")
    if chosen.strip():
        try:
            return shlex.split(chosen)
        except ValueError:  # an open quotation: no such program will be found, and the warning names it
            return [chosen]
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    return None if found is None else [found]


def _keep(library: Path, goal: Path) -> None:
    with contextlib.suppress(OSError):  # without a place to keep it, the next process compiles again
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = goal.with_name(f"{goal.name}.{os.getpid()}")
        shutil.copy(library, beside)
        with beside.open("rb+") as written:  # half a library would end every process that loads it
            os.fsync(written.fileno())
        beside.chmod(0o700)  # whatever the umask: `_is_trusted` asks for it
        beside.replace(goal)


_loader = _Loader()


def kernels_after(terms: int) -> Kernels | None:
    """Count the terms of a call and return the compiled kernels, if there are any by now.

    Args:
        terms: B N M A of the call.

    Returns:
        The kernels, or None.
    """
    return _loader.after(terms)


def compile_additive() -> bool:
    """Compile the fast kernels of additive scores now, or load them from disk, instead of after some work.

    It takes a second or two the first time on a machine and needs a C++ compiler (CXX, or g++, clang++ or c++
    on the path). The environment variables HEADLIGHTS_COMPILE=0, TORCHDYNAMO_DISABLE=1 and
    TORCH_COMPILE_DISABLE=1 each keep the library from compiling and from loading what was compiled.

    Returns:
        Whether the kernels serve from now on; without them additive scores are several times slower.
    """
    return _loader.bring() is not None
