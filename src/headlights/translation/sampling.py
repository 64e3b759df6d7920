"""Sampling: translations drawn at random, each token with the probability that the model gives it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from headlights.translation.decoding import Decoder
from headlights.translation.encoders import Memory
from headlights.translation.hypotheses import Ended, Hypothesis, nan_logits
from headlights.translation.prefixes import Prefixes, check_limits
from headlights.translation.search import SearchOptions
from headlights.translation.trace import Trace


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How to draw. First the temperature, then `top_k`, then `top_p` change what is drawn from.

    Attributes:
        temperature: Divides the logits, above 0: below 1 favours probable tokens, above 1 the others; near 0
            is greedy search.
        top_k: Draw among so many most probable tokens; 0: among all.
        top_p: Draw among the fewest most probable tokens that have this probability together, in (0, 1]
            (Holtzman et al. 2019, arXiv:1904.09751, 3.1; their p); 1: among all.
        seed: Of the random numbers, 0 or more.
        first_line: Number of the first sentence, for a text that is given in parts: what is drawn for a
            sentence depends on its number, not on the part or the batch that it comes in.
        max_ratio: Longest output, in target tokens per source token, end marks counted on both sides.
        max_extra: Tokens allowed beyond that, at least 1.
        n_best: Translations drawn per sentence; the first ones do not depend on how many.
        need_weights: Keep the attention.

    Raises:
        ValueError: A number is out of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    first_line: int = 0
    max_ratio: float = 1.5
    max_extra: int = 10
    n_best: int = 1
    need_weights: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                f"temperature must be above 0 and finite, got {self.temperature}; for the most probable "
                "tokens search with beam 1"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k must be 0 (all tokens) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, got {self.seed}")
        if self.first_line < 0:
            raise ValueError(f"first_line must be 0 or more, got {self.first_line}")
        if self.n_best < 1:
            raise ValueError(f"n_best must be at least 1, got {self.n_best}")
        check_limits(self.max_ratio, self.max_extra)


def with_given(
    options: SearchOptions | SamplingOptions | None, given: Mapping[str, Any]
) -> SearchOptions | SamplingOptions:
    """Options with single values in the place of theirs.

    Args:
        options: Default: those of `SearchOptions()`.
        given: Values by name; those that are None stay as they are.

    Returns:
        The options.

    Raises:
        TypeError: `options` are of another kind.
        ValueError: A value is out of its range, or is for the other way to translate.
    """
    options = SearchOptions() if options is None else options
    if not isinstance(options, SearchOptions | SamplingOptions):
        raise TypeError(f"options must be SearchOptions or SamplingOptions, got {type(options).__name__}")
    chosen = {name: value for name, value in given.items() if value is not None}
    unknown = chosen.keys() - {field.name for field in fields(options)}
    if unknown:
        raise ValueError(
            f"{' and '.join(sorted(unknown))} cannot be given with {type(options).__name__}; leave it out"
        )
    return replace(options, **chosen)


def sample(
    decoder: Decoder,
    memory: Memory,
    options: SamplingOptions,
    *,
    bos_id: int,
    eos_id: int,
    forbidden: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
    lines: Sequence[int] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch of encoded sentences by drawing one token after the other.

    The random numbers belong to seed, line and sample, so that a sentence is translated alike whatever stands
    beside it in the batch (unless rounding, which differs between batches, moves a probability across the
    number drawn). A translation leaves the batch when it ends.

    Args:
        decoder: Any decoder.
        memory: Encoded sentences, states of shape (B, M, E).
        options: What to draw from, seed and limits.
        bos_id: First token read.
        eos_id: Token that ends a translation.
        forbidden: Tokens that are never drawn.
        prefixes: Tokens that the translations of each sentence begin with, perhaps none. Default: none.
        lines: Number of each sentence, counted from `options.first_line`. Default: 0 to B - 1.

    Returns:
        For each of the B sentences, in order, `n_best` hypotheses in the order in which they were drawn; some
        may be alike. A score is the model's own log-probability, whatever changed what was drawn from;
        `normalised_score` is the mean per token, end mark counted.

    Raises:
        ValueError: The decoder's logits are NaN, or `prefixes` or `lines` do not fit the batch.
    """
    count = len(memory.lengths)
    barred = {eos_id, *forbidden}
    begun = Prefixes(prefixes, count=count, barred=barred, device=memory.states.device)
    lines = range(count) if lines is None else lines
    if len(lines) != count:
        raise ValueError(f"lines must be one per sentence, got {len(lines)} for {count} sentences")
    if not count:
        return []
    return _Draw(decoder, memory, options, bos_id, eos_id, forbidden, begun, lines).run()


def drawn_from(log_probabilities: Tensor, options: SamplingOptions) -> Tensor:
    """The distribution that a token is drawn from.

    Args:
        log_probabilities: Natural, or any logits, shape (..., V); -inf for what is never drawn.
        options: Temperature, `top_k` and `top_p`. Of tokens that are equally probable the lower id is kept.

    Returns:
        Probabilities, float64, shape (..., V); they sum to 1.
    """
    scaled = log_probabilities.double()
    scaled = (scaled - scaled.amax(-1, keepdim=True)) / options.temperature  # 0 for the most probable
    if not options.top_k and options.top_p == 1:
        return scaled.softmax(-1)
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    if options.top_k:
        ordered[..., options.top_k :] = -torch.inf
    ordered = ordered.softmax(-1)
    if options.top_p < 1:
        before = functional.pad(ordered.cumsum(-1), (1, -1))  # what all more probable ones have together
        ordered = ordered.masked_fill(before >= options.top_p, 0.0)
        ordered = ordered / ordered.sum(-1, keepdim=True)
    return torch.empty_like(ordered).scatter(-1, order, ordered)


def draw(probabilities: Tensor, chances: Tensor) -> Tensor:
    """Draw a token for each row: the first up to which all together have at least the row's chance.

    Args:
        probabilities: Float64, shape (rows, V); rows sum to 1.
        chances: Evenly distributed in (0, 1], float64, shape (rows,).

    Returns:
        Tokens, int64, shape (rows,); never one of probability 0.
    """
    below = probabilities.cumsum(-1)
    return (below < (chances * below[:, -1]).unsqueeze(1)).sum(-1)


class _Draw:
    """One batch of draws. Rows are the translations that go on, `n_best` for each sentence to begin with."""

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        options: SamplingOptions,
        bos_id: int,
        eos_id: int,
        forbidden: Sequence[int],
        prefixes: Prefixes,
        lines: Sequence[int],
    ) -> None:
        self.decoder, self.options, self.eos_id, self.forbidden = decoder, options, eos_id, list(forbidden)
        self.prefixes = prefixes
        self.lengths, device = memory.lengths.tolist(), memory.states.device
        limits = prefixes.limits(self.lengths, max_ratio=options.max_ratio, max_extra=options.max_extra)
        count, many = len(self.lengths), options.n_best
        self.rows = [(sentence, number) for sentence in range(count) for number in range(many)]
        self.ended: dict[tuple[int, int], Ended] = {}
        self.trace = Trace()
        keys = [
            (options.seed, options.first_line + lines[sentence], number) for sentence, number in self.rows
        ]
        longest = max(limits)
        chances = [1.0 - np.random.default_rng(key).random(longest) for key in keys]  # (0, 1], not [0, 1)
        self.chances = torch.from_numpy(np.stack(chances)).to(device)
        owners = torch.arange(count, device=device).repeat_interleave(many)
        self.limits = torch.tensor(limits, device=device)[owners]
        self.state = decoder.start(memory).select(owners)
        self.read = torch.full((count * many,), bos_id, device=device)
        self.totals = torch.zeros(count * many, device=device)

    @torch.no_grad()
    def run(self) -> list[list[Hypothesis]]:
        step = 0
        while self.rows:
            states, self.state, weights = self.decoder.advance(
                self.read, self.state, need_weights=self.options.need_weights
            )
            self.trace.look(weights)
            tokens = self._draw(step, self.decoder.project(states))
            self._keep(tokens, self._close(step, tokens))
            step += 1
        self.trace.settle()
        many = range(self.options.n_best)
        return [
            [self.ended[sentence, number].hypothesis(self.trace, length) for number in many]
            for sentence, length in enumerate(self.lengths)
        ]

    def _draw(self, step: int, logits: Tensor) -> Tensor:
        """A token for each row, (rows,), whose log-probability is added to the row's total."""
        log_probabilities = logits.float().log_softmax(-1)
        allowed = log_probabilities.clone()
        allowed[:, self.forbidden] = -torch.inf
        allowed = self.prefixes.force(allowed, step, [sentence for sentence, _ in self.rows])
        tokens = draw(drawn_from(allowed, self.options), self.chances[:, step])
        self.totals = self.totals + log_probabilities.gather(1, tokens.unsqueeze(1)).squeeze(1)
        return tokens

    def _close(self, step: int, tokens: Tensor) -> Tensor:
        """Note the translations that end here, by end mark or limit; the rows that go on."""
        over = tokens == self.eos_id
        closing = over | (self.limits <= step + 1)
        if any(map(math.isnan, self.totals.tolist())):
            raise nan_logits()
        for row in closing.nonzero().flatten().tolist():
            score = float(self.totals[row])
            last = () if over[row] else (int(tokens[row]),)
            self.ended[self.rows[row]] = Ended(step, row, last, score, score / (step + 1))
        return (~closing).nonzero().flatten()

    def _keep(self, tokens: Tensor, going: Tensor) -> None:
        """Drop the translations that have ended and make the other rows ready to be read."""
        self.read = tokens[going]
        self.trace.go_on(going, self.read)
        if len(going) == len(self.rows):
            return
        self.rows = [self.rows[row] for row in going.tolist()]
        self.totals, self.limits, self.chances = self.totals[going], self.limits[going], self.chances[going]
        if self.rows:
            self.state = self.state.select(going)
