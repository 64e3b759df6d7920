"""Which keys any query may look at, as masks tell scores that ask for it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import attend, masks, scores
from headlights.attention import PreparedKey
from headlights.attention._mask_shapes import Grid
from headlights.attention._visible_keys import visible_keys


def test_visible_keys_of_masks() -> None:
    grid = Grid((2, 3), 5, 7, torch.device("cpu"))
    keep = torch.rand(2, 1, 5, 7) > 0.7
    cases = {
        masks.lengths([3, 0]): (torch.arange(7) < torch.tensor([3, 0])[:, None])[:, None].expand(2, 3, 7),
        masks.keep(keep): keep.any(-2).expand(2, 3, 7),
        # the last query stands at the last key, the first at key 2: nobody looks at the keys 0 and 1
        masks.window(0, 0): (torch.arange(7) >= 2).expand(2, 3, 7),
        masks.causal() & masks.lengths([3, 0]): (torch.arange(7) < torch.tensor([3, 0])[:, None])[
            :, None
        ].expand(2, 3, 7),
        ~masks.window(7, 7): torch.zeros(2, 3, 7, dtype=torch.bool),
    }
    for mask, right in cases.items():
        found = visible_keys(mask, grid, (2, 3))
        assert found is not None
        assert torch.equal(found, right), mask
        shared = visible_keys(mask, grid, (1, 3))
        assert shared is not None
        assert torch.equal(shared, right.any(0, keepdim=True)), mask
        plain = visible_keys(mask, grid, ())
        assert plain is not None
        assert torch.equal(plain, right.any(0).any(0)), mask
    assert visible_keys(masks.window(9, 9), grid, (2, 3)) is None


def test_visible_keys_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headlights.attention._visible_keys.BLOCK_PAIRS", 1)
    test_visible_keys_of_masks()


def test_only_scores_that_ask_are_told_what_is_visible() -> None:
    told: list[Tensor | None] = []

    class Asking(scores.Dot):
        def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
            told.append(visible)
            return super().prepare_key(key, visible=visible, start=start)

    x = torch.randn(2, 5, 3)
    options: dict[str, Any] = {"mask": masks.lengths([2, 5]), "path": "reference"}
    score = Asking()
    right = attend(x, x, x, score=score, **options)
    score.needs_visible = True
    assert torch.equal(attend(x, x, x, score=score, **options), right)
    attend(x, x, x, score=score, path="reference")
    assert told[0] is None
    assert told[1] is not None
    assert told[1].tolist() == [[True, True, False, False, False], [True] * 5]
    assert told[2] is None
