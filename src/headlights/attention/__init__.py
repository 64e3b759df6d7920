"""Layer 1, attention itself: tensors in, tensors out. Imports torch only.

`attend` is the function; `scores`, `masks` and `observations` hold the parts that it takes.
"""

from headlights.attention import _masks as masks
from headlights.attention import _observations as observations
from headlights.attention import _scores as scores
from headlights.attention._attend import attend
from headlights.attention._cache import KeyValueCache
from headlights.attention._einsum import HeadWeights, from_einsum, stack_heads, to_einsum, unstack_heads
from headlights.attention._functional import multi_head_attention
from headlights.attention._mask_rules import Mask
from headlights.attention._memory import AssociativeMemory
from headlights.attention._multihead import MultiHeadAttention
from headlights.attention._observations import Observation
from headlights.attention._parameter_report import ParameterReport
from headlights.attention._scores import PreparedKey, Score

__all__ = [
    "AssociativeMemory",
    "HeadWeights",
    "KeyValueCache",
    "Mask",
    "MultiHeadAttention",
    "Observation",
    "ParameterReport",
    "PreparedKey",
    "Score",
    "attend",
    "from_einsum",
    "masks",
    "multi_head_attention",
    "observations",
    "scores",
    "stack_heads",
    "to_einsum",
    "unstack_heads",
]
