"""Teacher forcing: which target tokens a decoder reads as they were given, which as it wrote them (S17)."""

import math
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from headlights.translation.decoding import Decoder
from headlights.translation.encoders import Memory

Schedule = Literal["constant", "linear", "exponential", "inverse-sigmoid"]
Unit = Literal["run", "batch", "sentence", "token"]


class ForcingConfig(BaseModel):
    """How often training forces the given target, and how that changes; the section `forcing` of a recipe.

    Source: Bengio et al. 2015, arXiv:1506.03099, 2.4. Their ε_i is the ratio after i updates: "linear" is
    max(ε, k - c i) with k = `ratio`, ε = `final`, c = (k - ε) / `updates`; "exponential" is k^i with k =
    exp(-1 / `updates`); "inverse-sigmoid" is k / (k + exp(i / k)) with k = `updates`. The last two begin at
    `ratio` times that, and none falls below `final`.

    Attributes:
        ratio: Share that is forced, in 0..1: all along, or to begin with. 1 is teacher forcing, 0 leaves the
            decoder with nothing but its own words.
        schedule: How the share changes with the updates.
        final: The least share, unless the schedule is "constant"; None means 0.
        updates: How fast it falls, in updates; not for "constant".
        unit: What is forced or not as one: the whole "run", a "batch", a "sentence" or a "token".

    Raises:
        ValueError: A value is out of range, or keys do not go together.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    ratio: float = Field(1.0, ge=0.0, le=1.0)
    schedule: Schedule = "constant"
    final: float | None = Field(None, ge=0.0, le=1.0)
    updates: int | None = Field(None, ge=1)
    unit: Unit = "token"

    @model_validator(mode="after")
    def _goes_together(self) -> "ForcingConfig":
        if self.schedule == "constant":
            if self.final is not None or self.updates is not None:
                raise ValueError(
                    "final and updates say how the share falls, but schedule 'constant' keeps it; set "
                    "another schedule or leave them out"
                )
        elif self.updates is None:
            raise ValueError(f"schedule {self.schedule!r} needs updates, how fast the share falls")
        elif self.final is not None and self.final > self.ratio:
            raise ValueError(
                f"final must not be above ratio, from which the share falls, got {self.final} and "
                f"{self.ratio}"
            )
        return self

    def ratio_at(self, update: int) -> float:
        """The share that is forced in one update.

        Args:
            update: Its number, from 0.

        Returns:
            In 0..1.
        """
        if self.updates is None:
            return self.ratio
        final, done = self.final or 0.0, update / self.updates
        match self.schedule:
            case "linear":
                share = self.ratio - (self.ratio - final) * done
            case "exponential":
                share = self.ratio * math.exp(-done)
            case _:
                share = self.ratio * self.updates / (self.updates + math.exp(min(done, 700.0)))
        return max(final, share)

    def draw(self, target: Tensor, update: int, *, seed: int) -> Tensor | None:
        """Draw which tokens of a batch are forced.

        Args:
            target: What the decoder would read if all were, shape (B, T).
            update: Number of the update, from 0.
            seed: Of the run; decides if `unit` is "run". The other units draw from torch's random numbers.

        Returns:
            Bool, shape (B, T), on the same device; None, and no number is drawn, if all are forced.
        """
        ratio = self.ratio_at(update)
        if ratio >= 1.0:
            return None
        rows, columns = target.shape
        match self.unit:
            case "run":
                chance = torch.rand(1, 1, generator=torch.Generator().manual_seed(seed))
            case "batch":
                chance = torch.rand(1, 1)
            case "sentence":
                chance = torch.rand(rows, 1)
            case "token":
                chance = torch.rand(rows, columns)
        return (chance < ratio).expand(rows, columns).to(target.device)


@torch.no_grad()
def own_words(decoder: Decoder, ids: Tensor, memory: Memory, forcing: Tensor) -> Tensor:
    """Replace the tokens that are not forced by what the decoder writes in their place.

    The choice of a word has no gradient, so reading the result at once trains the same as having chosen on
    the way (but for dropout, which is drawn anew).

    Args:
        decoder: Any decoder.
        ids: Target tokens from `bos` on, int64, shape (B, T).
        memory: Of the same sentences.
        forcing: Bool, shape (B, T); True = read as given. The first column is `bos`, which always is.

    Returns:
        What is read, int64, shape (B, T): where not forced, the most probable token after all before it.

    Raises:
        ValueError: `forcing` is not a bool tensor of the shape of `ids`.
    """
    if forcing.dtype != torch.bool or forcing.shape != ids.shape:
        raise ValueError(
            f"forcing must be a bool tensor of the shape of ids, {tuple(ids.shape)}; got a {forcing.dtype} "
            f"tensor of shape {tuple(forcing.shape)}"
        )
    honest = (~forcing[:, 1:]).any(0).nonzero()
    if not len(honest):
        return ids
    read, state = ids.clone(), decoder.start(memory)
    for place in range(int(honest[-1]) + 1):
        states, state, _ = decoder.advance(read[:, place], state)
        following, own = place + 1, decoder.project(states).argmax(-1)
        read[:, following] = torch.where(forcing[:, following], ids[:, following], own)
    return read
