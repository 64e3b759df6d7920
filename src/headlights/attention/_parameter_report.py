"""How many numbers multi-head attention learns, part by part."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ParameterReport:
    """How many numbers a `MultiHeadAttention` learns, and what splitting W^Q W^K^T in two factors saves.

    Source: source A, "Multi-Head Attention": of W_i^Q (E, E_i) and W_i^K (E_k, E_i) only the product
    (E, E_k) matters, and the two hold 2 E^2 / H numbers if E_i = E / H.

    Attributes:
        query: Numbers in the query projection, with bias.
        key: Numbers in the key projection, with bias.
        value: Numbers in the value projection, with bias.
        output: Numbers in the output projection, with bias.
        other: Numbers in the learned extra slots and in the score.
        factors_per_head: Numbers in W_i^Q and W_i^K of one head: (E + E_k) D.
        product_per_head: Numbers in their product: E E_k.
    """

    query: int
    key: int
    value: int
    output: int
    other: int
    factors_per_head: int
    product_per_head: int

    @property
    def total(self) -> int:
        """All numbers together."""
        return self.query + self.key + self.value + self.output + self.other
