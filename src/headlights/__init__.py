"""headlights: attention you can see, at the speed of attention you can't.

Three layers, each usable without the ones above it: `attention` (tensors in, tensors out), `translation`
(a translator trained on your own text) and `view` (pictures of attention). The names below are loaded when
first used, so `import headlights` costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headlights._version import __version__

if TYPE_CHECKING:
    from headlights.attention import attend, masks, observations, scores

_HOME = {
    "attend": "headlights.attention",
    "masks": "headlights.attention",
    "observations": "headlights.attention",
    "scores": "headlights.attention",
}

__all__ = [
    "__version__",
    "attend",
    "masks",
    "observations",
    "scores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headlights' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
