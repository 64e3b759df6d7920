"""Layer 1, attention itself: tensors in, tensors out. Imports torch only.

`attend` is the function; `scores`, `masks` and `observations` hold the parts that it takes.
"""

from headlights.attention import _masks as masks
from headlights.attention import _observations as observations
from headlights.attention import _scores as scores
from headlights.attention._attend import attend
from headlights.attention._mask_rules import Mask
from headlights.attention._observations import Observation
from headlights.attention._scores import PreparedKey, Score

__all__ = [
    "Mask",
    "Observation",
    "PreparedKey",
    "Score",
    "attend",
    "masks",
    "observations",
    "scores",
]
