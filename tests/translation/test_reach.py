"""How far back a decoder reaches: copying sentences of random words, with attention and without it."""

import random
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

from headlights.translation.architectures import RecurrentConfig, ScoreName
from headlights.translation.batches import Batch, TokenBatches
from headlights.translation.model import TranslationModel

PAD, BOS, EOS, WORDS = 0, 1, 2, 8
UPDATES, RATE = 220, 0.015
LENGTHS, SHORT, LONG = (2, 12), (2, 4), (9, 10)


def sentences(count: int, shortest: int, longest: int, *, seed: int) -> list[list[int]]:
    """Random words, so that nothing but the source tells the next one."""
    draw = random.Random(seed)
    lengths = [draw.randint(shortest, longest) for _ in range(count)]
    return [[3 + draw.randrange(WORDS) for _ in range(length)] for length in lengths]


def batches(rows: list[list[int]], max_tokens: int) -> TokenBatches:
    return TokenBatches(rows, rows, max_tokens=max_tokens, pad_id=PAD, bos_id=BOS, eos_id=EOS, seed=3)


def make(score: ScoreName) -> TranslationModel:
    torch.manual_seed(3)
    sizes = {"embed_dim": 8, "hidden_dim": 32, "encoder_dim": 16, "score_dim": 16, "dropout": 0.0}
    return TranslationModel(RecurrentConfig(score=score, **sizes), 3 + WORDS, 3 + WORDS)


class Copied(NamedTuple):
    """How well sentences of some lengths are copied: the share of right words, and of sentences all right."""

    words: float
    sentences: float


@torch.no_grad()
def copied(model: TranslationModel, lengths: tuple[int, int]) -> Copied:
    """A sentence all right with forced words is what greedy search writes, too."""
    batch = next(batches(sentences(211, *lengths, seed=7), 10**6).ordered())
    real = batch.target_out != PAD
    right = model.decoder.project(model(batch).states).argmax(-1) == batch.target_out
    return Copied(float(right[real].double().mean()), float((right | ~real).all(1).double().mean()))


def trained(score: ScoreName) -> TranslationModel:
    model, data = make(score), batches(sentences(600, *LENGTHS, seed=1), 384)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    order = (batch for epoch in range(UPDATES) for batch in data.batches(epoch))
    for number, batch in zip(range(UPDATES), order, strict=False):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (UPDATES - number) / 60)
        loss = model.loss(batch)
        torch.autograd.backward(loss.smoothed / loss.tokens)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model


@pytest.fixture(scope="module")
def models() -> dict[ScoreName, TranslationModel]:
    torch.set_num_threads(1)
    return {score: trained(score) for score in ("additive", "none")}


def test_s97_attention_copies_at_lengths_where_the_plain_model_fails(
    models: dict[ScoreName, TranslationModel],
) -> None:
    with_attention, without = (copied(models[score], LONG) for score in ("additive", "none"))
    assert with_attention.sentences > 0.5
    assert without.sentences < 0.05


def test_s20_quality_falls_less_with_length_where_there_is_attention(
    models: dict[ScoreName, TranslationModel],
) -> None:
    short, long = ({score: copied(models[score], span).words for score in models} for span in (SHORT, LONG))
    assert short["additive"] - long["additive"] < 0.1
    assert short["none"] - long["none"] > 0.2


def gradient(score: ScoreName, length: int) -> float:
    """How much the first source word moves the last target word, in an untrained model of float64.

    The mean norm of the gradient of its log-probability by the embedding of the first source word.
    """
    model, seen = make(score).double(), list[Tensor]()
    batch: Batch = next(batches(sentences(16, length, length, seed=5), 10**6).ordered())

    def keep(_module: nn.Module, _arguments: tuple[Tensor, ...], embedded: Tensor) -> None:
        embedded.retain_grad()
        seen.append(embedded)

    model.encoder.embedding.register_forward_hook(keep)
    logits = model.decoder.project(model(batch).states[:, -2])  # the last is the end mark's
    torch.autograd.backward(logits.log_softmax(-1).gather(1, batch.target_out[:, -2:-1]).sum())
    assert seen[0].grad is not None
    return float(seen[0].grad[:, 0].norm(dim=-1).mean())


def test_s97_the_gradient_of_a_far_word_fades_without_attention() -> None:
    near, far = 3, 41
    fades = {score: gradient(score, near) / gradient(score, far) for score in ("additive", "none")}
    # With attention there is a way of weight 1/M past all states between: about 14 times fainter, not more.
    assert fades["additive"] < 30
    assert fades["none"] > 10_000
    assert gradient("additive", far) > 1000 * gradient("none", far)
