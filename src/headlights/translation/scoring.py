"""Given translations: how probable a model finds them, and where it looks while it writes them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from headlights.translation.batches import Batch, TokenBatches
from headlights.translation.corpus.reading import has_blank_side
from headlights.translation.ensemble import Ensemble
from headlights.translation.hypotheses import Hypothesis, nan_logits
from headlights.translation.losses import log_probabilities
from headlights.translation.model import TranslationModel
from headlights.translation.tokenizer import Encoded, Tokenizer


class TargetScore(NamedTuple):
    """How probable a model finds a given translation.

    Attributes:
        log_probability: Natural, summed over the tokens; 0 where there are none.
        tokens: Target tokens that were scored, end mark included; 0 where either side is blank.
    """

    log_probability: float
    tokens: int


@dataclass(frozen=True, slots=True)
class GivenPairs:
    """Pairs of texts as tokens, those with a blank side left out.

    Attributes:
        places: Where each pair stands among all that were given.
        sources: Its source.
        targets: Its target.
    """

    places: list[int]
    sources: list[Encoded]
    targets: list[Encoded]

    @classmethod
    def encode(
        cls, sources: Sequence[str], targets: Sequence[str], source: Tokenizer, target: Tokenizer
    ) -> "GivenPairs":
        """Encode pairs of texts.

        Args:
            sources: Source sentences.
            targets: A translation of each.
            source: Tokenizer of the sources.
            target: Tokenizer of the targets.

        Returns:
            The pairs, in order.
        """
        pairs = enumerate(zip(sources, targets, strict=True))
        places = [place for place, sides in pairs if not has_blank_side(*sides)]
        return cls(
            places,
            source.encode_batch([sources[place] for place in places]),
            target.encode_batch([targets[place] for place in places]),
        )

    def batches(self, max_tokens: int, target: Tokenizer) -> Iterator[Batch]:
        """The pairs in batches; `indices` are places in `sources` and `targets`.

        Args:
            max_tokens: Tokens of a batch, padding counted.
            target: Tokenizer of the targets.

        Returns:
            Batches, longest pairs first, on the CPU.
        """
        if not self.places:
            return iter(())
        return TokenBatches(
            [sentence.ids for sentence in self.sources],
            [sentence.ids for sentence in self.targets],
            max_tokens=max_tokens,
            pad_id=target.pad_id,
            bos_id=target.bos_id,
            eos_id=target.eos_id,
        ).ordered()


@torch.no_grad()
def score_batch(model: TranslationModel | Ensemble, batch: Batch) -> list[float]:
    """How probable a model finds the targets of a batch.

    Args:
        model: In evaluation mode.
        batch: B pairs, on the model's device.

    Returns:
        B summed natural log-probabilities, end marks included.

    Raises:
        InputError: One is NaN.
    """
    return _sums(model, batch, model(batch).states)


@torch.no_grad()
def force_batch(model: TranslationModel | Ensemble, batch: Batch) -> list[Hypothesis]:
    """The targets of a batch as if a search had found them.

    Args:
        model: In evaluation mode.
        batch: B pairs, on the model's device.

    Returns:
        B hypotheses, with attention if the model has any.

    Raises:
        InputError: A score is NaN.
    """
    decoded = model(batch, need_weights=True)
    scores = _sums(model, batch, decoded.states)
    found = []
    sizes = zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
    for row, (source_length, length) in enumerate(sizes):
        weights = None
        if decoded.weights is not None:
            weights = decoded.weights[row, :length, :, :, :source_length]  # (T, L, H, M)
            weights = weights.permute(1, 2, 0, 3)  # (L, H, T, M)
        ids = tuple(batch.target_out[row, : length - 1].tolist())
        found.append(Hypothesis(ids, scores[row], scores[row] / length, weights))
    return found


def _sums(model: TranslationModel | Ensemble, batch: Batch, states: Tensor) -> list[float]:
    """Of each row of states (B, T, E), the summed log-probability of its target."""
    steps = torch.arange(states.size(1), device=states.device)
    real = steps < batch.target_lengths.unsqueeze(1)  # (B, T)
    chosen = log_probabilities(states[real], batch.target_out[real], model.decoder.project).cpu()
    # Added up in long numbers, so that no padding and no order of batches shows in a sum.
    parts = chosen.split_with_sizes(batch.target_lengths.tolist())
    sums = [float(part.double().sum()) for part in parts]
    if any(map(math.isnan, sums)):
        raise nan_logits()
    return sums
