"""Learning rates: how fast a training goes at each of its updates."""

import math

from headlights.translation.recipe import TrainingConfig


def learning_rate(config: TrainingConfig, update: int, done: float) -> float:
    """The rate of one update: linear warm-up, then down along the schedule.

    Source: Vaswani et al. 2017, arXiv:1706.03762, eq. 3, is schedule "inverse-sqrt" with the highest rate
    (E * `warmup_updates`) ** -0.5.

    Args:
        config: Schedule, highest and final rate, warm-up.
        update: Number of the update, from 0.
        done: Share of the training that is done, in 0..1; read by "cosine" alone.

    Returns:
        The learning rate.
    """
    warm = min(1.0, (update + 1) / config.warmup_updates) if config.warmup_updates else 1.0
    match config.schedule:
        case "cosine":
            cosine = 0.5 * (1.0 + math.cos(math.pi * min(done, 1.0)))
            return config.learning_rate * warm * (config.final_rate + (1.0 - config.final_rate) * cosine)
        case "inverse-sqrt":
            fall = math.sqrt(max(1, config.warmup_updates) / (update + 1))
            return config.learning_rate * min(warm, max(config.final_rate, fall))
