"""Greedy and beam search, for any decoder with `start`, `advance` and `project`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headlights._errors import InputError
from headlights.translation.candidates import best_tokens
from headlights.translation.decoding import Decoder
from headlights.translation.encoders import Memory
from headlights.translation.hypotheses import Ended, Hypothesis, nan_logits
from headlights.translation.prefixes import Prefixes, check_limits
from headlights.translation.trace import Trace

MOST_PENALTY = 20  # of the longest output allowed, the power is still a number
# Rows whose logits a processor has in memory at once; for all, asking for the memory takes longest.
PART = 256


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """How to search.

    Attributes:
        beam: Hypotheses kept per sentence, at least 1; 1 is greedy search.
        length_penalty: Power of the length (end mark counted) that divides the score, 0 to 20; 0 ranks by
            plain probability.
        coverage_penalty: Weight of a penalty, added to what ranks a hypothesis, on source tokens that got
            less than 1 of all attention: Σ log(min(attention received, 1)) (Wu et al. 2016, arXiv:1609.08144,
            eq. 14; their β). 0: none.
        max_ratio: Longest output, in target tokens per source token, end marks counted on both sides.
        max_extra: Tokens allowed beyond that, at least 1.
        n_best: Hypotheses returned per sentence, at most `beam`.
        patience: Be done with a sentence when `beam` times that many hypotheses have ended (Kasai et al.
            2022, arXiv:2204.05424; 1 is what most translators do), and a third faster. None: not before no
            open one can still overtake the best.
        need_weights: Keep the attention of the winners.

    Raises:
        ValueError: A number is out of its range.
    """

    beam: int = 5
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    max_ratio: float = 1.5
    max_extra: int = 10
    n_best: int = 1
    patience: float | None = None
    need_weights: bool = False

    def __post_init__(self) -> None:
        if self.beam < 1:
            raise ValueError(f"beam must be at least 1, got {self.beam}")
        if not 1 <= self.n_best <= self.beam:
            raise ValueError(
                f"n_best must be between 1 and beam ({self.beam}), got {self.n_best}; raise the beam for more"
            )
        if self.patience is not None and not 0 < self.patience < math.inf:
            raise ValueError(f"patience must be above 0 and finite, got {self.patience}")
        if not 0 <= self.length_penalty <= MOST_PENALTY:
            raise ValueError(
                f"length_penalty must be between 0 and {MOST_PENALTY}, got {self.length_penalty}"
            )
        if not 0 <= self.coverage_penalty < math.inf:
            raise ValueError(
                f"coverage_penalty must not be negative, and be finite, got {self.coverage_penalty}"
            )
        check_limits(self.max_ratio, self.max_extra)


def search(
    decoder: Decoder,
    memory: Memory,
    options: SearchOptions,
    *,
    bos_id: int,
    eos_id: int,
    forbidden: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch of encoded sentences by beam search.

    Those of the `beam` most probable continuations that end a sentence have ended; the best `beam` that do
    not end go on, so the beam never runs dry. With a beam of 1 nothing goes on beside an end: greedy search.
    A sentence leaves the batch when nothing goes on, or when no open hypothesis can still overtake the best
    ended ones: a summed log-probability only falls, so its best is what it has now, divided by the longest
    length allowed. With `patience` it leaves when so many have ended, if that is sooner.

    Args:
        decoder: Any decoder.
        memory: Encoded sentences, states of shape (B, M, E).
        options: Width, ranking and limits.
        bos_id: First token read.
        eos_id: Token that ends a hypothesis.
        forbidden: Tokens that are never written. The others keep the probability that the model gives them.
        prefixes: Tokens that the hypotheses of each sentence begin with, perhaps none; scores count them as
            any others, and the limit leaves room for one token more. Default: none.

    Returns:
        For each of the B sentences, in order, `n_best` hypotheses or fewer, best first; any that the limit
        cut come after all that ended by themselves.

    Raises:
        ValueError: The decoder's logits are NaN, `coverage_penalty` meets a decoder without attention, or
            `prefixes` do not fit the batch or hold a token that cannot be written.
    """
    barred = {eos_id, *forbidden}
    begun = Prefixes(prefixes, count=len(memory.lengths), barred=barred, device=memory.states.device)
    if memory.lengths.numel() == 0:
        return []
    return _Search(decoder, memory, options, bos_id, eos_id, forbidden, begun).run()


class _Search:
    """One search. Each sentence in the batch has the same number of rows, side by side: one, then `beam`."""

    def __init__(
        self,
        decoder: Decoder,
        memory: Memory,
        options: SearchOptions,
        bos_id: int,
        eos_id: int,
        forbidden: Sequence[int],
        prefixes: Prefixes,
    ) -> None:
        self.decoder, self.options, self.eos_id, self.forbidden = decoder, options, eos_id, list(forbidden)
        self.watches = options.coverage_penalty > 0
        self.device = memory.states.device
        self.lengths = memory.lengths.tolist()
        self.prefixes = prefixes
        self.limits = prefixes.limits(self.lengths, max_ratio=options.max_ratio, max_extra=options.max_extra)
        self.ended: list[list[Ended]] = [[] for _ in self.limits]
        self.trace = Trace()
        self.covered: Tensor | None = None  # attention received so far, (rows, M), with a coverage penalty
        count = len(self.limits)
        self.sentences = list(range(count))  # those still in the batch
        self.state = decoder.start(memory)
        self.read = torch.full((count,), bos_id, device=self.device)
        self.totals = torch.zeros(count, 1, device=self.device)

    @torch.no_grad()
    def run(self) -> list[list[Hypothesis]]:
        step = 0
        while self.sentences:
            states, self.state, weights = self.decoder.advance(
                self.read, self.state, need_weights=self.options.need_weights or self.watches
            )
            self.trace.look(weights if self.options.need_weights else None)
            if self.watches:
                self._cover(weights)
            parents, tokens = self._close(step, *self._extend(step, states))
            self._keep(parents, tokens)
            step += 1
        self.trace.settle()
        return [self._ranked(sentence) for sentence in range(len(self.limits))]

    def _cover(self, weights: Tensor | None) -> None:
        """Add up the attention that each row's source tokens have received."""
        if weights is None:
            raise InputError(
                "coverage_penalty needs a decoder with attention; this one has none: set it to 0"
            )
        received = weights.mean((1, 2))  # (rows, M)
        self.covered = received if self.covered is None else self.covered + received

    def _extend(self, step: int, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Totals, parent rows and tokens of each sentence's best continuations, 2 * beam, best first."""
        beam, width = self.options.beam, self.totals.size(1)
        wanted = 1 if beam == 1 else 2 * beam
        scores, tokens = self._best(step, states, wanted)
        each = tokens.size(1)
        candidates = (self.totals.unsqueeze(-1) + scores.view(-1, width, each)).flatten(1)
        totals, best = candidates.topk(min(wanted, width * each), dim=1)
        first_row = torch.arange(best.size(0), device=self.device).unsqueeze(1) * width
        return totals, first_row + best // each, tokens.view(-1, width * each).gather(1, best)

    def _best(self, step: int, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens of each row's best continuations, `count` or all, (rows, K)."""
        part = PART if self.device.type == "cpu" else len(states)
        wanted = self.prefixes.wanted(step, self.sentences, len(states))
        parts = [slice(first, first + part) for first in range(0, len(states), part)]
        found = [
            best_tokens(
                self.decoder.project(states[rows]).float(),
                count,
                self.forbidden,
                None if wanted is None else wanted[rows],
            )
            for rows in parts
        ]
        scores, tokens = zip(*found, strict=True)
        return torch.cat(scores), torch.cat(tokens)

    def _close(self, step: int, totals: Tensor, parents: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Note the hypotheses that end here, by end mark or limit; parents and tokens of those that go on."""
        over = tokens == self.eos_id
        best = torch.arange(totals.size(1), device=self.device) < self.options.beam
        self._note(step, over & best, totals, parents, tokens)
        # At most one continuation of a parent ends it, so among 2 * beam there are `beam` that do not.
        self.totals, going = totals.masked_fill(over, -torch.inf).topk(min(self.options.beam, over.size(1)))
        parents, tokens = parents.gather(1, going), tokens.gather(1, going)  # (S, beam)
        at_limit = [step + 1 >= self.limits[sentence] for sentence in self.sentences]
        cut = torch.tensor(at_limit, device=self.device).unsqueeze(1).expand_as(tokens)
        self._note(step, cut, self.totals, parents, tokens)
        self.totals = self.totals.masked_fill(cut, -torch.inf)
        return parents, tokens

    def _note(self, step: int, closing: Tensor, totals: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Put the hypotheses where `closing` is True among those that have ended."""
        closing = closing & (totals > -torch.inf)
        places = closing.nonzero()[:, 0].tolist()
        found = (each[closing].tolist() for each in (totals, parents, tokens))
        for place, score, row, token in zip(places, *found, strict=True):
            sentence = self.sentences[place]
            normalised = score / (step + 1) ** self.options.length_penalty
            if self.covered is not None:
                received = self.covered[row, : self.lengths[sentence]]
                unseen = received.clamp(torch.finfo(received.dtype).tiny, 1.0).log().sum()
                normalised += self.options.coverage_penalty * float(unseen)
            last = () if token == self.eos_id else (token,)
            self.ended[sentence].append(Ended(step, row, last, score, normalised))

    def _keep(self, parents: Tensor, tokens: Tensor) -> None:
        """Drop the sentences that are decided and make the rows of the others ready to be read."""
        hopes = self.totals.amax(1).tolist()
        stay = [
            place for place, sentence in enumerate(self.sentences) if self._undecided(sentence, hopes[place])
        ]
        alike = len(stay) == len(self.sentences) and parents.numel() == self.read.numel()
        self.sentences = [self.sentences[place] for place in stay]
        kept = torch.tensor(stay, dtype=torch.long, device=self.device)
        self.totals, rows, self.read = self.totals[kept], parents[kept].flatten(), tokens[kept].flatten()
        self.trace.go_on(rows, self.read)
        if self.covered is not None:
            self.covered = self.covered[rows]
        if self.sentences:
            self.state = self.state.select(rows, same_sentences=alike)

    def _undecided(self, sentence: int, hope: float) -> bool:
        """Whether an open hypothesis worth `hope` may still come before the `n_best` best ended ones."""
        if math.isnan(hope):
            raise nan_logits()
        if hope == -math.inf:
            return False
        ended = sorted((e.normalised_score for e in self.ended[sentence]), reverse=True)
        if len(ended) < self.options.n_best:
            return True
        patience = self.options.patience
        if patience is not None and len(ended) >= self.options.beam * patience:
            return False
        longest: float = self.limits[sentence] ** self.options.length_penalty
        return hope / longest > ended[self.options.n_best - 1]

    def _ranked(self, sentence: int) -> list[Hypothesis]:
        """The best hypotheses; those that the limit cut come after all that ended by themselves."""
        ended = sorted(self.ended[sentence], key=lambda e: (len(e.last), -e.normalised_score))
        return [e.hypothesis(self.trace, self.lengths[sentence]) for e in ended[: self.options.n_best]]
