"""What attention learns by itself: in a toy language of known word order, where it should look is known."""

import random

import pytest
import torch
from torch import Tensor

from headlights.translation.architectures import RecurrentConfig
from headlights.translation.batches import TokenBatches
from headlights.translation.model import TranslationModel

PAD, BOS, EOS, WORDS = 0, 1, 2, 17


@pytest.fixture(scope="module")
def looked() -> tuple[Tensor, Tensor]:
    """Weights (B, T, M) of a model that has learned to write word n + 17 for word n, and the lengths (B,)."""
    torch.manual_seed(3)
    torch.set_num_threads(1)
    rng = random.Random(3)
    source = [[3 + rng.randrange(WORDS) for _ in range(rng.randint(2, 7))] for _ in range(800)]
    target = [[word + WORDS for word in sentence] for sentence in source]
    batches = TokenBatches(source, target, max_tokens=256, pad_id=PAD, bos_id=BOS, eos_id=EOS, seed=3)
    config = RecurrentConfig(embed_dim=16, hidden_dim=32, encoder_dim=16, score_dim=16, dropout=0.0)
    model = TranslationModel(config, 3 + WORDS, 3 + 2 * WORDS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.015)
    for epoch in range(16):
        for batch in batches.batches(epoch):
            loss = model.loss(batch)
            torch.autograd.backward(loss.smoothed / loss.tokens)
            optimizer.step()
            optimizer.zero_grad()
    batch = next(batches.batches(99))
    with torch.no_grad():
        weights = model(batch, need_weights=True).weights
    return weights[:, :, 0, 0], batch.source_lengths


def test_s35_monotone_language_gives_a_near_diagonal_path(looked: tuple[Tensor, Tensor]) -> None:
    weights, lengths = looked
    near = total = 0
    for row, length in enumerate(lengths.tolist()):
        path = weights[row, : length - 1].argmax(-1).tolist()  # the end mark is no word
        near += sum(abs(step - place) <= 1 for step, place in enumerate(path))
        total += len(path)
    assert near / total > 0.95
    # The first step looks at the first words: the first more than any later one, on average.
    first = weights[:, 0].mean(0)
    assert first.argmax() == 0


def test_s22_partners_get_more_weight_than_other_words(looked: tuple[Tensor, Tensor]) -> None:
    weights, lengths = looked
    partner, other = [], []
    for row, length in enumerate(lengths.tolist()):
        for step in range(length - 1):
            partner.append(float(weights[row, step, step]))
            other += [float(weights[row, step, key]) for key in range(length - 1) if key != step]
    assert sum(partner) / len(partner) > 4 * sum(other) / len(other)
