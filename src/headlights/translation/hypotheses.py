"""What search and sampling find: translations in tokens, ranked, and walked back from their ends."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from headlights._errors import InputError
from headlights.translation.trace import Trace


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One finished translation, in tokens.

    Attributes:
        ids: Target tokens without `bos` and `eos`.
        score: Summed natural log-probability, end mark included (excluded where the limit cut the sentence).
        normalised_score: What ranked it: the score divided by length ** `length_penalty`, and the coverage
            penalty added. Of a sample: the score divided by the length.
        weights: Attention of the tokens and of the end mark, if there is one, shape (L, H, T, M), padding cut
            off; None unless asked for, or without attention.
        cut: Whether the length limit cut it, so that it has no end mark.
    """

    ids: tuple[int, ...]
    score: float
    normalised_score: float
    weights: Tensor | None
    cut: bool = False


class Ended(NamedTuple):
    """A translation that has ended: where its last row stands in the trace, and what it is worth.

    Attributes:
        step: The last step that it took part in.
        row: Its row there.
        last: Its last token; none if that was the end mark.
        score: As in `Hypothesis`.
        normalised_score: As in `Hypothesis`.
    """

    step: int
    row: int
    last: tuple[int, ...]
    score: float
    normalised_score: float

    def hypothesis(self, trace: Trace, length: int) -> Hypothesis:
        """The translation itself.

        Args:
            trace: Of the search, settled.
            length: Real tokens of the source.

        Returns:
            The translation, cut if it has a last token other than the end mark.
        """
        ids, weights = trace.follow(self.step, self.row, self.last, length)
        return Hypothesis(ids, self.score, self.normalised_score, weights, bool(self.last))


def nan_logits() -> InputError:
    """The error to raise where a decoder's logits are NaN; it says what to do."""
    return InputError(
        "the decoder's logits are NaN: the model is broken; train it again, with a lower "
        "training.learning_rate"
    )
