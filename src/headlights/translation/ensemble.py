"""Several models that decode together: search sees one decoder, whose probabilities are the mean of all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from headlights._errors import InputError
from headlights.translation.batches import Batch
from headlights.translation.decoding import Decoded, Decoder, StepByStep
from headlights.translation.encoders import Memory
from headlights.translation.folders import ModelFolder
from headlights.translation.model import TranslationModel


@dataclass(frozen=True, slots=True)
class JointMemory(Memory):
    """What several encoders leave of the same batch. Its own states are those of the first.

    Attributes:
        members: One memory per model, all of the same B sentences.
    """

    members: tuple[Memory, ...]

    @classmethod
    def of(cls, members: Sequence[Memory]) -> "JointMemory":
        """Put memories together.

        Args:
            members: One or more, of the same sentences.

        Returns:
            All of them as one.
        """
        first = members[0]
        return cls(first.states, first.lengths, first.final, tuple(members))


@dataclass(frozen=True, slots=True)
class JointState:
    """What an ensemble carries from step to step.

    Attributes:
        members: One state per decoder, all of the same rows.
    """

    members: tuple[Any, ...]

    def select(self, indices: Tensor, *, same_sentences: bool = False) -> "JointState":
        """The state of the rows `indices`.

        Args:
            indices: Rows to take, int64, shape (B',); may repeat.
            same_sentences: Promise that every row is replaced by a row of the same source sentence.

        Returns:
            A new state; this one is left as it is.
        """
        return JointState(
            tuple(state.select(indices, same_sentences=same_sentences) for state in self.members)
        )


class EnsembleDecoder(StepByStep):
    """Several decoders as one: each step has the mean of their probabilities.

    Args:
        members: Decoders that write the same V target tokens.
    """

    def __init__(self, members: Sequence[Decoder]) -> None:
        self.members = tuple(members)

    def start(self, memory: Memory) -> JointState:
        """The states of all before the first token.

        Args:
            memory: A `JointMemory` with one memory for each decoder.

        Returns:
            The state, of B rows.

        Raises:
            TypeError: `memory` is of one encoder only.
            ValueError: There are not as many memories as decoders.
        """
        if not isinstance(memory, JointMemory):
            raise TypeError(
                f"memory must be a JointMemory, one memory per member, got {type(memory).__name__}"
            )
        if len(memory.members) != len(self.members):
            raise ValueError(
                f"memory must hold one memory per member, got {len(memory.members)} for "
                f"{len(self.members)} decoders"
            )
        pairs = zip(self.members, memory.members, strict=True)
        return JointState(tuple(decoder.start(each) for decoder, each in pairs))

    def advance(
        self, token_ids: Tensor, state: JointState, *, need_weights: bool = False
    ) -> tuple[Tensor, JointState, Tensor | None]:
        """Read one token per row and predict the next; `project` has nothing left to do.

        Args:
            token_ids: The last tokens written, int64, shape (B,); `bos` first.
            state: From `start` or the step before.
            need_weights: Also return where the decoders looked.

        Returns:
            logits: The logarithm of the mean probabilities, float, shape (B, V).
            state: For the next step; the one given is left as it is.
            weights: Float in 0..1, shape (B, 1, 1, M): the mean over each member's layers and heads, and then
                over the members that have attention; None if none has or they are not needed.

        Raises:
            ValueError: The members do not write the same number of tokens.
        """
        steps = [
            decoder.advance(token_ids, each, need_weights=need_weights)
            for decoder, each in zip(self.members, state.members, strict=True)
        ]
        states = [each for each, _, _ in steps]
        logits = mean_logits([d.project(each) for d, each in zip(self.members, states, strict=True)])
        return logits, JointState(tuple(each for _, each, _ in steps)), _mean([w for _, _, w in steps])

    def project(self, states: Tensor) -> Tensor:
        """The logits that `advance` or `Ensemble` has made, which is done at once for all members.

        Args:
            states: From either, float, shape (..., V).

        Returns:
            The same.
        """
        return states


class Ensemble:
    """Several models that read the same source tokens and write the same target tokens, used as one.

    Args:
        models: One or more, where they are to compute and in evaluation mode.

    Attributes:
        models: As given.
        decoder: Of all of them.
    """

    def __init__(self, models: Sequence[TranslationModel]) -> None:
        self.models = tuple(models)
        self.decoder = EnsembleDecoder([model.decoder for model in models])

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers and heads of the attention it shows: (1, 1), or (0, 0) if no model has any."""
        return (1, 1) if any(all(model.attention_shape) for model in self.models) else (0, 0)

    def encoder(self, ids: Tensor, lengths: Tensor) -> JointMemory:
        """Encode a padded batch with every model.

        Args:
            ids: Source token ids, int64, shape (B, M), padded on the right.
            lengths: Real tokens per sentence, int64, shape (B,), each at least 1.

        Returns:
            Their memories.
        """
        return JointMemory.of([model.encoder(ids, lengths) for model in self.models])

    def __call__(self, batch: Batch, *, need_weights: bool = False) -> Decoded:
        """Encode the sources of a batch and read its targets, each token forced.

        Args:
            batch: B sentence pairs with T target tokens, padding counted.
            need_weights: Also return where the decoders looked.

        Returns:
            Logits per target token, (B, T, V), which `decoder.project` leaves alone, and weights as in
            `EnsembleDecoder.step`, (B, T, 1, 1, M).
        """
        logits, weights = [], []
        for model in self.models:
            decoded: Decoded = model(batch, need_weights=need_weights)
            logits.append(model.decoder.project(decoded.states))
            weights.append(decoded.weights)
        return Decoded(mean_logits(logits), _mean(weights))


def mean_logits(members: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean of several distributions.

    Args:
        members: Logits of each, float, shape (..., V).

    Returns:
        Natural log-probabilities, float, shape (..., V).

    Raises:
        ValueError: They are not over the same number of tokens.
    """
    sizes = [logits.size(-1) for logits in members]
    if len(set(sizes)) > 1:
        raise ValueError(f"members of an ensemble must share one target vocabulary, got sizes {sizes}")
    stacked = torch.stack([logits.float().log_softmax(-1) for logits in members])
    return stacked.logsumexp(0) - math.log(len(members))


def _mean(members: Sequence[Tensor | None]) -> Tensor | None:
    """Weights (..., L, H, M) of each member as one, (..., 1, 1, M)."""
    seen = [weights.mean((-3, -2), keepdim=True) for weights in members if weights is not None]
    return torch.stack(seen).mean(0) if seen else None


def check_alike(folders: Sequence[ModelFolder], names: Sequence[str]) -> None:
    """Refuse models that cannot decode together, since they do not read and write the same tokens.

    Args:
        folders: The models, the first of which sets what the others must have.
        names: What the user calls each.

    Raises:
        InputError: One has another source or target tokenizer than the first.
    """
    first = folders[0]
    for folder, name in zip(folders[1:], names[1:], strict=True):
        for side in ("source", "target"):
            ours, theirs = (getattr(each, f"{side}_tokenizer") for each in (first, folder))
            if not ours.same_as(theirs):
                raise InputError(
                    f"{name}: its {side} tokenizer is not that of {names[0]}, so they cannot decode "
                    "together; train both with the same training and validation files and tokenizer settings"
                )
