"""Training speed of the recurrent translator against the loop that tutorials write: same sizes, data and run.

    python benchmarks/recurrent_training.py --updates 10 --rounds 3 --threads 2

The textbook loop: sentences batched in shuffled order, keys projected and tanh(query + key) materialised at
every step, logits of every padded position at every step. Ours: `headlights.translation`, as `train` does it.
The two take turns; printed are median target tokens per second (padding not counted) and the ratio.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from headlights.translation.architectures import RecurrentConfig
from headlights.translation.batches import Batch, TokenBatches
from headlights.translation.corpus import grammar
from headlights.translation.model import TranslationModel
from headlights.translation.tokenizer import Tokenizer

PAD, BOS, EOS = 0, 1, 2


class Textbook(nn.Module):
    """Encoder, additive attention and decoder as a tutorial has them."""

    def __init__(self, source_vocab: int, target_vocab: int, config: RecurrentConfig) -> None:
        super().__init__()
        memory = 2 * config.encoder_dim
        self.source_embedding = nn.Embedding(source_vocab, config.embed_dim, padding_idx=PAD)
        self.target_embedding = nn.Embedding(target_vocab, config.embed_dim, padding_idx=PAD)
        self.encoder = nn.GRU(config.embed_dim, config.encoder_dim, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(memory, config.hidden_dim)
        self.W1 = nn.Linear(config.hidden_dim, config.score_dim, bias=False)
        self.W2 = nn.Linear(memory, config.score_dim, bias=False)
        self.b = nn.Linear(config.score_dim, 1, bias=False)
        self.cell = nn.GRUCell(config.embed_dim + memory, config.hidden_dim)
        self.readout = nn.Linear(config.hidden_dim + memory + config.embed_dim, config.embed_dim)
        self.output = nn.Linear(config.embed_dim, target_vocab)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        states, final = self.encoder(self.dropout(self.source_embedding(source)))
        hidden = torch.tanh(self.bridge(torch.cat([final[0], final[1]], 1)))
        logits = []
        for step in range(target.size(1)):
            embedded = self.dropout(self.target_embedding(target[:, step]))
            scores = self.b(torch.tanh(self.W1(hidden).unsqueeze(1) + self.W2(states))).squeeze(2)
            weights = scores.masked_fill(source == PAD, -torch.inf).softmax(1)
            context = torch.bmm(weights.unsqueeze(1), states).squeeze(1)
            hidden = self.cell(torch.cat([embedded, context], 1), hidden)
            read = torch.tanh(self.readout(torch.cat([hidden, context, embedded], 1)))
            logits.append(self.output(self.dropout(read)))
        return torch.stack(logits, 1)

    def loss(self, batch: Batch) -> Tensor:
        logits = self(batch.source, batch.target_in)
        answers = batch.target_out.flatten()
        return F.cross_entropy(logits.flatten(0, 1), answers, ignore_index=PAD, label_smoothing=0.1)


def shuffled_batches(batches: TokenBatches, size: int, max_tokens: int) -> Iterator[Batch]:
    """Batches of the same budget, in shuffled order instead of by length."""
    rng = random.Random(0)
    while True:
        rows = list(range(size))
        rng.shuffle(rows)
        longest, chosen = 0, []
        for row in rows:
            longest = max(longest, int(batches.batch(torch.tensor([row])).target_lengths))
            chosen.append(row)
            if longest * len(chosen) >= max_tokens:
                yield batches.batch(torch.tensor(chosen))
                longest, chosen = 0, []


def main() -> None:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--updates", type=int, default=10, help="per turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=2048, help="budget of a batch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    pairs = grammar.splits().train
    source = Tokenizer.train((pair.source for pair in pairs), vocab_size=2000)
    target = Tokenizer.train((pair.target for pair in pairs), vocab_size=2000)
    batches = TokenBatches(
        [each.ids for each in source.encode_batch(pair.source for pair in pairs)],
        [each.ids for each in target.encode_batch(pair.target for pair in pairs)],
        max_tokens=options.tokens,
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
    )
    config = RecurrentConfig(embed_dim=256, hidden_dim=512, encoder_dim=256, score_dim=512, dropout=0.3)
    ours = TranslationModel(config, source.vocab_size, target.vocab_size)
    textbook = Textbook(source.vocab_size, target.vocab_size, config)

    def our_loss(batch: Batch) -> Tensor:
        loss = ours.loss(batch, label_smoothing=0.1)
        return loss.smoothed / loss.tokens

    epochs = (batch for epoch in range(1000) for batch in batches.batches(epoch))
    turns: dict[str, tuple[nn.Module, Callable[[Batch], Tensor], Iterator[Batch]]] = {
        "headlights": (ours, our_loss, epochs),
        "textbook": (textbook, textbook.loss, shuffled_batches(batches, len(pairs), options.tokens)),
    }
    optimizers = {name: torch.optim.AdamW(turn[0].parameters(), fused=True) for name, turn in turns.items()}
    speeds: dict[str, list[float]] = {name: [] for name in turns}
    for turn in range(options.rounds + 1):  # the first warms up
        for name, (model, loss_of, data) in turns.items():
            chosen = [next(data) for _ in range(options.updates)]
            started = time.perf_counter()
            for batch in chosen:
                torch.autograd.backward(loss_of(batch))
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizers[name].step()
                optimizers[name].zero_grad()
            seconds = time.perf_counter() - started
            if turn:
                speeds[name].append(sum(int(batch.target_lengths.sum()) for batch in chosen) / seconds)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, values in speeds.items():
        print(f"{name:12}{medians[name]:8,.0f} target tokens/s   ({min(values):,.0f} to {max(values):,.0f})")
    print(f"ratio       {medians['headlights'] / medians['textbook']:8.2f}")


if __name__ == "__main__":
    main()
