"""Learning rates: by hand, and as published."""

from typing import Any

import pytest

from headlights.translation.rates import learning_rate
from headlights.translation.recipe import TrainingConfig


def config_of(**values: Any) -> Any:
    return TrainingConfig(max_updates=1, **values)


def test_rate_warms_up_and_falls_along_a_cosine() -> None:
    config = config_of(warmup_updates=4, learning_rate=8.0, final_rate=0.25)
    assert learning_rate(config, 0, 0.0) == 2.0  # a quarter of the warm-up
    assert learning_rate(config, 3, 0.0) == 8.0
    assert learning_rate(config, 100, 0.5) == pytest.approx(5.0)  # half way from 8 to 2
    assert learning_rate(config, 100, 1.0) == pytest.approx(2.0)
    assert learning_rate(config, 100, 3.0) == pytest.approx(2.0)
    assert learning_rate(config_of(warmup_updates=0, learning_rate=8.0), 0, 0.0) == 8.0


def test_inverse_square_root_by_hand_and_as_published() -> None:
    config = config_of(schedule="inverse-sqrt", learning_rate=8.0, warmup_updates=4, final_rate=0.25)
    rates = [learning_rate(config, update, done=0.7) for update in (0, 1, 3, 15, 24, 63, 1000)]
    # 8 * (1/4, 2/4, 4/4), then 8 * sqrt(4 / n) for n = 16, 25, and at least 8 * 0.25 (from n = 64 on)
    assert rates == pytest.approx([2.0, 4.0, 8.0, 4.0, 3.2, 2.0, 2.0])
    # Vaswani et al. 2017, eq. 3, for E = 512 and 4000 updates of warm-up
    published = config_of(
        schedule="inverse-sqrt", learning_rate=(512 * 4000) ** -0.5, warmup_updates=4000, final_rate=0.0
    )
    for n in (1, 77, 3999, 4000, 4001, 90_000):
        expected = 512**-0.5 * min(n**-0.5, n * 4000**-1.5)
        assert learning_rate(published, n - 1, 0.0) == pytest.approx(expected)
    none = config_of(schedule="inverse-sqrt", learning_rate=8.0, warmup_updates=0)
    assert [learning_rate(none, update, 0.0) for update in (0, 3)] == pytest.approx([8.0, 4.0])
