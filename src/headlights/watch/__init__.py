"""Watching and replacing attention in models that nobody here wrote.

`observe` records what a model's attention does while a block runs; `replace_attention` swaps every
`nn.MultiheadAttention` for ours.
"""

from headlights.watch._observe import observe
from headlights.watch._record import Record
from headlights.watch._replace import replace_attention

__all__ = ["Record", "observe", "replace_attention"]
