"""How good a model is on the validation pairs: what training goes by."""

import math

import torch

from headlights.translation.data import TrainingData
from headlights.translation.evaluation import bleu
from headlights.translation.folders import ModelFolder
from headlights.translation.model import TranslationModel
from headlights.translation.recipe import Recipe
from headlights.translation.translator import Translator


def judge(
    folder: ModelFolder, data: TrainingData, recipe: Recipe, device: torch.device
) -> tuple[float, float]:
    """Translate the validation pairs and score them.

    Args:
        folder: The model and its tokenizers; it is left in evaluation mode.
        data: What it is trained and validated on.
        recipe: Of the training.
        device: Where the model is.

    Returns:
        bleu: Of greedy translations, 0..100; 0 where the loss is no number, for then nothing can be.
        loss: Cross-entropy, in nats per target token.
    """
    translator = Translator(folder, device=device)
    loss = validation_loss(translator.model, data, recipe.training.batch_tokens, device)
    if not math.isfinite(loss):
        return 0.0, loss
    pairs = data.valid
    texts = translator.translate([pair.source for pair in pairs], beam=1, alignment=False)
    score = bleu(
        [text.text for text in texts],
        [pair.target for pair in pairs],
        lowercase=recipe.tokenizer.lowercase,
    )
    return score, loss


@torch.no_grad()
def validation_loss(
    model: TranslationModel, data: TrainingData, batch_tokens: int, device: torch.device
) -> float:
    """Cross-entropy per token of the validation pairs.

    Args:
        model: In evaluation mode.
        data: Its data.
        batch_tokens: Tokens computed at once, padding counted.
        device: Where the model is.

    Returns:
        In nats.
    """
    total, tokens = 0.0, 0
    for batch in data.batches(data.valid, batch_tokens).ordered():
        loss = model.loss(batch.to(device))
        total, tokens = total + float(loss.cross_entropy), tokens + loss.tokens
    return total / tokens
