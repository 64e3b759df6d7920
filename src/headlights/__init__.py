"""headlights: attention you can see, at the speed of attention you can't.

Three layers, each usable without the ones above it: `attention` (tensors in, tensors out), `translation`
(a translator trained on your own text) and `view` (pictures of attention); `senses` tells the senses of a
word apart. The names below are loaded when first used, so `import headlights` costs nothing until then.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headlights._version import __version__

if TYPE_CHECKING:
    from headlights.attention import (
        AssociativeMemory,
        KeyValueCache,
        MultiHeadAttention,
        attend,
        masks,
        multi_head_attention,
        observations,
        scores,
    )
    from headlights.translation.training import train
    from headlights.translation.translations import Translation
    from headlights.translation.translator import Translator
    from headlights.watch import observe, replace_attention

_HOME = {
    "AssociativeMemory": "headlights.attention",
    "KeyValueCache": "headlights.attention",
    "MultiHeadAttention": "headlights.attention",
    "Translation": "headlights.translation.translations",
    "Translator": "headlights.translation.translator",
    "attend": "headlights.attention",
    "masks": "headlights.attention",
    "multi_head_attention": "headlights.attention",
    "observations": "headlights.attention",
    "observe": "headlights.watch",
    "replace_attention": "headlights.watch",
    "scores": "headlights.attention",
    "train": "headlights.translation.training",
}

__all__ = [
    "AssociativeMemory",
    "KeyValueCache",
    "MultiHeadAttention",
    "Translation",
    "Translator",
    "__version__",
    "attend",
    "masks",
    "multi_head_attention",
    "observations",
    "observe",
    "replace_attention",
    "scores",
    "senses",
    "train",
    "view",
]


def __getattr__(name: str) -> Any:
    if name in ("senses", "view"):
        return import_module(f"headlights.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'headlights' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"headlights.{name} needs the package {error.name}: pip install 'headlights[translate]'"
        ) from None


def __dir__() -> list[str]:
    return __all__
