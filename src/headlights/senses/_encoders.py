"""What makes vectors of words: for a word alone, and for a word among others."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from headlights.attention import attend, masks, observations, scores

Encoder = Callable[[Sequence[str]], Tensor]
"""Words to their static vectors: n words -> float, shape (n, E), zero for a word that it does not know.

The vector of a word is the same wherever the word stands.
"""


class Context(NamedTuple):
    """The words of one sentence, each seen among the others.

    Attributes:
        vectors: The new vectors, float, shape (N, E).
        weights: How much each word (row) takes from each (column), shape (N, N), each in 0..1; a row sums to
            1, or is all zero for a word that is not known.
    """

    vectors: Tensor
    weights: Tensor


@runtime_checkable
class ContextEncoder(Protocol):
    """An encoder that can also see a word among others.

    Attributes:
        one_space: Whether static and contextual vectors may be compared with each other. They may if the new
            vector is a mixture of static ones; the layers of a deep model each have a space of their own.
    """

    one_space: bool

    def __call__(self, words: Sequence[str]) -> Tensor:
        """Static vectors: n words to float, shape (n, E), zero for a word that it does not know."""
        ...

    def context(self, words: Sequence[str]) -> Context:
        """The N words of one sentence, in order, each seen among the others."""
        ...


class SelfAttention:
    """Gives any encoder of static vectors a context: each word becomes a mixture of all words.

    Source: source A, "Core Idea". The weights of word j are softmax over i of scale * v_j·v_i, itself
    included, and its new vector is the sum of all v_i times their weights.

    Args:
        encoder: Static vectors. Words with a zero vector are not looked at.
        scale: Multiplies the dot products; unitless, any finite number. Default: 1, as in the source.

    Raises:
        ValueError: `scale` is not finite.

    Example:
        >>> import torch
        >>> vectors = {"table": [2.0, 0.0], "data": [1.0, 1.0], "the": [0.0, 0.0]}
        >>> encoder = SelfAttention(lambda words: torch.tensor([vectors[word] for word in words]))
        >>> encoder.context(["the", "table", "data"]).weights[1]  # e⁴ and e² over their sum
        tensor([0.0000, 0.8808, 0.1192])
    """

    one_space = True

    def __init__(self, encoder: Encoder, *, scale: float = 1.0) -> None:
        self.encoder = encoder
        self.score = scores.Dot(scale)

    def __call__(self, words: Sequence[str]) -> Tensor:
        """Static vectors of the wrapped encoder.

        Args:
            words: n words.

        Returns:
            Float, shape (n, E).

        Raises:
            TypeError: The encoder returned no tensor.
            ValueError: Its tensor is not (n, E).
        """
        vectors: object = self.encoder(words)
        if not isinstance(vectors, Tensor):
            raise TypeError(f"encoder: expected it to return a torch.Tensor, got {type(vectors).__name__}")
        if vectors.ndim != 2 or len(vectors) != len(words) or not vectors.is_floating_point():
            raise ValueError(
                f"encoder: expected floats of shape (n, E) for n = {len(words)} words, got {vectors.dtype} "
                f"of shape {tuple(vectors.shape)}"
            )
        return vectors.detach()

    def context(self, words: Sequence[str]) -> Context:
        """Mix the words of one sentence.

        Args:
            words: N words in order.

        Returns:
            The mixtures and their weights.
        """
        vectors = self(words)
        known = vectors.any(-1)  # (N,)
        mask = masks.keep(known.unsqueeze(0) & known.unsqueeze(1))
        mixed, weights = attend(
            vectors, vectors, vectors, score=self.score, mask=mask, observe=observations.Weights()
        )
        return Context(mixed, weights)
