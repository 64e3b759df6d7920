"""The words that a hypothesis may go on with: the best of a whole vocabulary, found quickly."""

from collections.abc import Sequence

import torch
from torch import Tensor

_GROUP = 64  # words of whose logits only the highest is looked at first


def best_tokens(
    logits: Tensor, count: int, forbidden: Sequence[int], wanted: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and tokens that come first in each row.

    Args:
        logits: Float, shape (rows, V).
        count: How many to find, as far as there are so many.
        forbidden: Tokens that are never written; found, they have log-probability -inf. The others keep the
            probability that the model gives them.
        wanted: For each row the token that alone may come, or -1, int64, shape (rows,). Default: any may.

    Returns:
        Log-probabilities and tokens, shape (rows, K), for K = `count` and one for each forbidden token, or V.
    """
    scores, tokens = highest(logits, min(count + len(forbidden), logits.size(1)))
    # The most probable word has logit h and probability exp(h) / sum, so log sum is h less its logarithm. It
    # is of all words, so that a score is what forcing the tokens gives.
    normalisers = scores[:, :1] - logits.softmax(1).gather(1, tokens[:, :1]).log_()
    scores = scores - normalisers
    for token in forbidden:
        scores = scores.masked_fill(tokens == token, -torch.inf)
    if wanted is not None:
        rows = (wanted >= 0).nonzero().squeeze(1)
        scores[rows] = -torch.inf
        scores[rows, 0] = logits[rows, wanted[rows]] - normalisers[rows, 0]
        tokens[rows, 0] = wanted[rows]
    return scores, tokens


def highest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The same as `torch.topk` over the words of each row, about twice as fast on a processor.

    The highest `count` stand in the `count` groups whose maxima are highest, and maxima are found quickly.

    Args:
        logits: Float, shape (rows, V).
        count: How many, at most V.

    Returns:
        Logits and tokens, best first, shape (rows, `count`). Which of equal ones come is left open.
    """
    rows, words = logits.shape
    groups = words // _GROUP
    if groups <= count or logits.device.type != "cpu":
        return logits.topk(count, dim=1)
    grouped = logits[:, : groups * _GROUP].view(rows, groups, _GROUP)
    best = grouped.amax(2).topk(count, dim=1).indices.unsqueeze(2)  # (rows, count, 1)
    candidates = grouped.gather(1, best.expand(-1, -1, _GROUP)).flatten(1)
    tokens = (best * _GROUP + torch.arange(_GROUP)).flatten(1)
    rest = torch.arange(groups * _GROUP, words).expand(rows, -1)
    found, places = torch.cat([candidates, logits[:, groups * _GROUP :]], 1).topk(count, dim=1)
    return found, torch.cat([tokens, rest], 1).gather(1, places)
