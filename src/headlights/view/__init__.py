"""Pictures of attention: arrays and words in; terminal text, an HTML page or an SVG picture out.

Nothing here knows a model or draws on a screen: functions take any array with its words and return text or a
page, and showing or saving it is the caller's choice. Rows are target words (queries), columns source words
(keys).
"""

from headlights.view._files import load_attention, save_attention
from headlights.view._maps import AttentionMap
from headlights.view._page import Page, html, page
from headlights.view._picture import svg
from headlights.view._terminal import alignment_text, terminal

__all__ = [
    "AttentionMap",
    "Page",
    "alignment_text",
    "html",
    "load_attention",
    "page",
    "save_attention",
    "svg",
    "terminal",
]
