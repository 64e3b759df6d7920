"""How torch's Transformer modules are brought to call our module in evaluation.

There nn.TransformerEncoder and its layers read the parameters of their attention and compute by
themselves, unless it says that it has no packed matrix (the layers ask that) or its parameters override
torch's functions (the encoder asks that, before it turns a padded batch into a NestedTensor). Both are
answered so to their forward passes alone, and to a compiler, which cannot follow frames.
"""

import sys
from typing import Any


class OwnForward:
    """Stands for a parameter, or a layer with two, of which `torch.overrides.has_torch_function` is true."""

    weight: "OwnForward"
    bias: "OwnForward"

    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        return NotImplemented


_STAND_IN = OwnForward()
_STAND_IN.weight = _STAND_IN.bias = _STAND_IN
READ_BY_ENCODER = dict.fromkeys(("in_proj_weight", "in_proj_bias", "out_proj"), _STAND_IN)
"""What an encoder reads of its attention, and what it is given."""


def asked_by_transformer() -> bool:
    """Whether the caller's caller is the forward pass of one of torch's Transformer modules."""
    frame = sys._getframe(2)
    return (
        frame.f_globals.get("__name__") == "torch.nn.modules.transformer"
        and frame.f_code.co_name == "forward"
    )
