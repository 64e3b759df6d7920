"""What search and sampling are compared with: a decoder that looks its logits up, and forced decoding."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.encoders import Memory
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.transformer import TransformerDecoder

BOS, EOS = 0, 1
Table = Callable[[int, tuple[int, ...]], Sequence[float]]  # logits for a sentence and what is written so far


@dataclass
class Written:
    """A toy decoder's state: for each row its sentence and what it has read."""

    rows: list[tuple[int, tuple[int, ...]]]

    def select(self, indices: Tensor, *, same_sentences: bool = False) -> "Written":
        chosen = [self.rows[i] for i in indices.tolist()]
        if same_sentences:
            assert [sentence for sentence, _ in chosen] == [sentence for sentence, _ in self.rows]
        return Written(chosen)


@dataclass
class Toy:
    """A decoder that looks its logits up; its weights tell which sentence and step they belong to."""

    table: Table
    read: list[list[tuple[int, tuple[int, ...]]]] = field(default_factory=list)

    def start(self, memory: Memory) -> Written:
        return Written([(sentence, ()) for sentence in range(len(memory.lengths))])

    def advance(
        self, token_ids: Tensor, state: Written, *, need_weights: bool = False
    ) -> tuple[Tensor, Written, Tensor | None]:
        tokens = token_ids.tolist()
        rows = [(s, (*written, token)) for (s, written), token in zip(state.rows, tokens, strict=True)]
        self.read.append(rows)
        assert all(written[0] == BOS for _, written in rows)
        logits = torch.tensor([list(self.table(s, written[1:])) for s, written in rows])
        weights = torch.tensor([[s, *written, *[0] * 9][:7] for s, written in rows])[:, None, None].float()
        return logits, Written(rows), weights if need_weights else None

    def project(self, states: Tensor) -> Tensor:
        return states


def scattered(seed: int, vocab: int = 4) -> Table:
    """Logits drawn anew for every prefix."""

    def table(sentence: int, written: tuple[int, ...]) -> list[float]:
        draw = random.Random(f"{seed} {sentence} {written}")
        return [draw.gauss(0.0, 1.5) for _ in range(vocab)]

    return table


def sources(*lengths: int) -> Memory:
    return Memory(torch.zeros(len(lengths), 7, 1), torch.tensor(lengths), torch.zeros(len(lengths), 1))


def log_softmax(logits: Sequence[float]) -> list[float]:
    total = math.log(sum(math.exp(x) for x in logits))
    return [x - total for x in logits]


def alone(memory: Memory, row: int) -> Memory:
    """One sentence of a batch, without padding."""
    at, length = slice(row, row + 1), int(memory.lengths[row])
    return Memory(memory.states[at, :length], memory.lengths[at], memory.final[at])


@torch.no_grad()
def by_forcing(
    decoder: RecurrentDecoder | TransformerDecoder, memory: Memory, found: Hypothesis, *, bos: int, eos: int
) -> tuple[float, Tensor]:
    """Score and weights (L, H, T, M) of the same tokens, read by the decoder all at once."""
    written = list(found.ids) if found.cut else [*found.ids, eos]
    decoded = decoder(torch.tensor([[bos, *written[:-1]]]), memory, need_weights=True)
    assert decoded.weights is not None
    log_probabilities = decoder.project(decoded.states)[0].log_softmax(-1)
    score = sum(float(log_probabilities[t, token]) for t, token in enumerate(written))
    return score, decoded.weights[0].permute(1, 2, 0, 3)
