"""Teacher forcing and own words: schedules by hand, units by counting, and what is read, token by token."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from headlights import scores
from headlights.translation.architectures import RecurrentConfig
from headlights.translation.batches import TokenBatches
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.encoders import Memory
from headlights.translation.forcing import ForcingConfig, Unit, own_words
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Reporter
from headlights.translation.recipe import RecipeError, check_recipe
from headlights.translation.training import train
from headlights.translation.transformer import TransformerDecoder
from headlights.translation.transformer_layers import TransformerShape
from tests.translation.toy import fingerprint, toy_content

B, T, V, E = 3, 6, 13, 8


def make_decoder(kind: str) -> RecurrentDecoder | TransformerDecoder:
    decoder: RecurrentDecoder | TransformerDecoder
    if kind == "recurrent":
        decoder = RecurrentDecoder(V, 5, 7, E, score=scores.Additive(7, E, 3))
    else:
        decoder = TransformerDecoder(V, TransformerShape(E, 2, 11, layers=2))
    with torch.no_grad():
        decoder.output.weight.mul_(9)  # or all words are alike
    return decoder.double().eval()


def remember() -> Memory:
    states = torch.randn(B, 4, E).double()
    return Memory(states, torch.tensor([4, 1, 3]), states[:, 0])


def target_ids() -> Tensor:
    return torch.tensor([[1, 5, 9, 2, 3, 4], [1, 12, 3, 3, 8, 0], [1, 4, 0, 0, 0, 0]])


kinds = pytest.mark.parametrize("kind", ["recurrent", "transformer"])


def test_s17_schedules_by_hand() -> None:
    linear = ForcingConfig(schedule="linear", ratio=0.9, final=0.1, updates=4)
    # falls by (0.9 - 0.1) / 4 = 0.2 an update, and stops
    assert [linear.ratio_at(i) for i in range(7)] == pytest.approx([0.9, 0.7, 0.5, 0.3, 0.1, 0.1, 0.1])
    exponential = ForcingConfig(schedule="exponential", ratio=0.8, final=0.2, updates=5)
    k = math.exp(-1 / 5)
    assert [exponential.ratio_at(i) for i in (0, 1, 5)] == pytest.approx([0.8, 0.8 * k, 0.8 * k**5])
    assert exponential.ratio_at(40) == 0.2  # 0.8 * exp(-8) is less
    sigmoid = ForcingConfig(schedule="inverse-sigmoid", updates=10)
    assert sigmoid.ratio_at(0) == pytest.approx(10 / 11)
    assert sigmoid.ratio_at(23) == pytest.approx(10 / (10 + math.exp(2.3)))  # about a half: exp(2.3) = 9.97
    assert sigmoid.ratio_at(10**7) == pytest.approx(0.0)
    constant = ForcingConfig(ratio=0.3)
    assert {constant.ratio_at(i) for i in (0, 1, 1000)} == {0.3}
    assert ForcingConfig().ratio_at(5) == 1.0


@pytest.mark.parametrize("unit", ["run", "batch", "sentence", "token"])
def test_s17_about_half_is_forced_and_each_unit_as_one(unit: Unit) -> None:
    config, ids = ForcingConfig(ratio=0.5, unit=unit), torch.zeros(7, 11)
    draws = [config.draw(ids, update, seed=update if unit == "run" else 0) for update in range(400)]
    found = torch.stack([draw for draw in draws if draw is not None]).float()  # (400, 7, 11)
    assert found.shape == (400, 7, 11)
    same_in_row = (found == found[:, :, :1]).all()
    same_in_batch = (found == found[:, :1, :1]).all()
    assert bool(same_in_row) == (unit != "token")
    assert bool(same_in_batch) == (unit in ("run", "batch"))
    independent = {"token": found.numel(), "sentence": 400 * 7}.get(unit, 400)
    # Four standard deviations of a mean of that many fair coins.
    assert float(found.mean()) == pytest.approx(0.5, abs=4 * 0.5 / independent**0.5)


def test_s17_draws_are_seeded() -> None:
    config = ForcingConfig(ratio=0.5, unit="token")

    def drawn(seed: int) -> Tensor:
        torch.manual_seed(seed)
        draw = config.draw(torch.zeros(5, 7), 0, seed=0)
        assert draw is not None
        return draw

    assert torch.equal(drawn(3), drawn(3))
    assert not torch.equal(drawn(3), drawn(4))
    # A whole run decides once, by its own seed: a run that goes on decides the same.
    once = ForcingConfig(ratio=0.5, unit="run")
    decisions = {
        (seed, bool(once.draw(torch.zeros(1, 1), n, seed=seed))) for seed in range(20) for n in (0, 9)
    }
    assert len(decisions) == 20
    assert {forced for _, forced in decisions} == {False, True}


def test_s17_ratio_1_is_teacher_forcing_bit_for_bit() -> None:
    state = torch.get_rng_state()
    for config in (ForcingConfig(), ForcingConfig(schedule="linear", updates=9, final=1.0, unit="sentence")):
        assert config.draw(torch.zeros(5, 7), 4, seed=1) is None
    assert torch.equal(torch.get_rng_state(), state)
    model = TranslationModel(RecurrentConfig(embed_dim=5, hidden_dim=7, encoder_dim=3, score_dim=3), 11, 13)
    pairs = TokenBatches([[3, 4], [5]], [[6, 7, 8], [9]], max_tokens=99, pad_id=0, bos_id=1, eos_id=2)
    batch = pairs.batch(torch.tensor([0, 1]))

    def loss(forcing: Tensor | None) -> Tensor:
        torch.manual_seed(4)
        return model.train().loss(batch, forcing=forcing).smoothed

    every = torch.ones_like(batch.target_in, dtype=torch.bool)
    assert torch.equal(loss(None), loss(every))
    assert not torch.equal(loss(None), loss(~every))


@kinds
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_s17_what_is_not_forced_is_what_the_decoder_would_write(kind: str, share: float) -> None:
    decoder, memory, ids = make_decoder(kind), remember(), target_ids()
    forcing = torch.rand(B, T) < share
    read = own_words(decoder, ids, memory, forcing)
    for row in range(B):
        alone = Memory(
            memory.states[row : row + 1], memory.lengths[row : row + 1], memory.final[row : row + 1]
        )
        expected = [int(ids[row, 0])]
        for place in range(1, T):
            logits = decoder.project(decoder(torch.tensor([expected]), alone).states)[0, -1]
            expected.append(int(ids[row, place]) if forcing[row, place] else int(logits.argmax()))
        assert read[row].tolist() == expected
    assert torch.equal(decoder(ids, memory, forcing).states, decoder(read, memory).states)
    assert torch.equal(target_ids(), ids)
    assert not torch.equal(read, ids)


@kinds
def test_own_words_let_gradients_through_what_is_read(kind: str) -> None:
    decoder = make_decoder(kind)
    decoded = decoder(target_ids(), remember(), torch.zeros(B, T, dtype=torch.bool))
    torch.autograd.backward(decoder.project(decoded.states).sin().sum())
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name


@kinds
def test_steps_end_with_the_last_own_word(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, forcing = make_decoder(kind), torch.ones(B, T, dtype=torch.bool)
    steps: list[int] = []
    advance = decoder.advance

    def count(token_ids: Tensor, state: Any, **options: Any) -> Any:
        steps.append(len(token_ids))
        return advance(token_ids, state, **options)

    monkeypatch.setattr(decoder, "advance", count)
    assert own_words(decoder, target_ids(), remember(), forcing) is not None
    assert steps == []
    forcing[:, 0] = False  # `bos` is nobody's word
    own_words(decoder, target_ids(), remember(), forcing)
    assert steps == []
    forcing[1, 2] = False
    own_words(decoder, target_ids(), remember(), forcing)
    assert steps == [B, B]


def test_s17_training_with_own_words_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    content = toy_content(tmp_path / "data", max_updates=12, schedule="inverse-sqrt")
    content["forcing"] = {"schedule": "linear", "updates": 8, "final": 0.2, "unit": "sentence"}
    half = {**content, "training": {**content["training"], "max_updates": 6}}
    train(content, out=tmp_path / "whole", device="cpu", reporter=Reporter())
    train(half, out=tmp_path / "parts", device="cpu", reporter=Reporter())
    train(content, out=tmp_path / "parts", resume=True, device="cpu", reporter=Reporter())
    key = "resume/model.safetensors"
    assert fingerprint(tmp_path / "whole")[key] == fingerprint(tmp_path / "parts")[key]
    forced = {**content, "forcing": {}}
    train(forced, out=tmp_path / "forced", device="cpu", reporter=Reporter())
    assert fingerprint(tmp_path / "whole")[key] != fingerprint(tmp_path / "forced")[key]


@pytest.mark.parametrize(
    ("forcing", "text"),
    [
        ({"updates": 3}, "forcing: final and updates say how the share falls, but schedule 'constant' keeps"),
        ({"final": 0.5}, "forcing: final and updates say how the share falls, but schedule 'constant' keeps"),
        ({"schedule": "linear"}, "forcing: schedule 'linear' needs updates, how fast the share falls"),
        (
            {"schedule": "linear", "updates": 3, "ratio": 0.4, "final": 0.5},
            "forcing: final must not be above ratio, from which the share falls, got 0.5 and 0.4",
        ),
        ({"ratio": 1.5}, "forcing.ratio: input should be less than or equal to 1, got 1.5"),
        ({"unti": "run"}, "unknown key forcing.unti; did you mean forcing.unit?"),
    ],
)
def test_recipes_that_do_not_go_together(forcing: dict[str, Any], text: str) -> None:
    with pytest.raises(RecipeError, match=text.replace("?", r"\?")):
        check_recipe({"training": {"max_updates": 1}, "forcing": forcing}, "mine")


def test_refusals() -> None:
    decoder, ids = make_decoder("recurrent"), target_ids()
    text = r"forcing must be a bool tensor of the shape of ids, \(3, 6\); got a torch\.\w+ tensor of shape \("
    for wrong in (torch.ones(B, T), torch.ones(B, T - 1, dtype=torch.bool)):
        with pytest.raises(ValueError, match=text):
            decoder(ids, remember(), wrong)
