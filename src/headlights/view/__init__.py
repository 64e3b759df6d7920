"""Pictures of attention: arrays and words in; terminal text, an HTML page, an SVG picture or a figure out.

Nothing here knows a model or draws on a screen: functions take any array with its words and return text or a
page, and showing or saving it is the caller's choice. Rows are target words (queries), columns source words
(keys). Figures need matplotlib, the extra `view`; everything else does without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headlights.view._files import attention_line, load_attention, load_attention_lines, save_attention
from headlights.view._maps import AttentionMap
from headlights.view._page import Page, html, page
from headlights.view._picture import svg
from headlights.view._terminal import alignment_text, terminal

if TYPE_CHECKING:
    from headlights.view._curves import curves
    from headlights.view._entropy import entropy
    from headlights.view._heads import heads
    from headlights.view._lines import lines
    from headlights.view._matrix import alignment, matrix
    from headlights.view._training import training

_FIGURES = {
    "alignment": "headlights.view._matrix",
    "curves": "headlights.view._curves",
    "entropy": "headlights.view._entropy",
    "heads": "headlights.view._heads",
    "lines": "headlights.view._lines",
    "matrix": "headlights.view._matrix",
    "training": "headlights.view._training",
}

__all__ = [
    "AttentionMap",
    "Page",
    "alignment",
    "alignment_text",
    "attention_line",
    "curves",
    "entropy",
    "heads",
    "html",
    "lines",
    "load_attention",
    "load_attention_lines",
    "matrix",
    "page",
    "save_attention",
    "svg",
    "terminal",
    "training",
]


def __getattr__(name: str) -> Any:
    if name not in _FIGURES:
        raise AttributeError(f"module 'headlights.view' has no attribute {name!r}")
    try:
        return getattr(import_module(_FIGURES[name]), name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ImportError(
            f"view.{name} needs the package {package}: pip install 'headlights[view]'"
        ) from None


def __dir__() -> list[str]:
    return __all__
