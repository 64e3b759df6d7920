"""What a recipe can ask for: every architecture trains, saves, goes on and translates by the same road."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from headlights.translation.architectures import RecurrentConfig, TransformerConfig
from headlights.translation.batches import TokenBatches
from headlights.translation.folders import FolderError, ModelFolder, read_json, write_json
from headlights.translation.model import TranslationModel
from headlights.translation.progress import Reporter
from headlights.translation.recipe import check_recipe
from headlights.translation.training import train
from headlights.translation.transformer import TransformerDecoder
from headlights.translation.translator import Translator
from tests.translation.toy import fingerprint, toy_content

TRANSFORMER: dict[str, Any] = {
    "architecture": "transformer",
    "layers": 2,
    "embed_dim": 12,
    "heads": 3,
    "feedforward_dim": 17,
}
SMALL: dict[str, Any] = {"embed_dim": 12, "hidden_dim": 7, "encoder_dim": 5, "score_dim": 3}


def transformer_content(folder: Path, **training: Any) -> dict[str, Any]:
    """The toy recipe with a Transformer, all tables one."""
    content = toy_content(folder, schedule="inverse-sqrt", **training)
    content["tokenizer"]["joint"] = True
    content["model"] = {**TRANSFORMER, "tie": "all"}
    return content


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 24 updates; not to be written into."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("transformer")
    recipe = check_recipe(transformer_content(folder), "toy")
    train(recipe, out=folder / "run", device="cpu", reporter=Reporter())
    return folder / "run"


def test_s98_a_transformer_is_trained_and_translates_by_the_same_road(run: Path) -> None:
    translator = Translator.load(run, device="cpu")
    assert isinstance(translator.model.config, TransformerConfig)
    lines = ["red cat runs", "", "old dog"]
    found = translator.translate(lines, beam=3, n_best=2, attention=True)
    assert [t.source_words for t in found] == [("red", "cat", "runs"), (), ("old", "dog")]
    first = found[0]
    assert first.attention is not None
    assert first.attention.shape == (2, 3, len(first.tokens), 4)  # layers, heads, tokens, source and its end
    assert torch.allclose(first.attention.sum(-1), torch.ones(2, 3, len(first.tokens)), atol=1e-5)
    for translation in (found[0], found[2]):
        alone = translator.align([" ".join(translation.source_words)], [translation.text])[0]
        if translation.tokens[-1] == "</s>":
            assert translation.score == pytest.approx(alone.score, abs=1e-4)
        for source, target in translation.alignment:
            assert source < len(translation.source_words)
            assert target < len(translation.words)


def test_a_transformer_goes_on_as_if_it_had_not_stopped(run: Path, tmp_path: Path) -> None:
    content = transformer_content(tmp_path)
    content["data"] = read_recipe(run)["data"]
    half = {**content, "training": {**content["training"], "max_updates": 12}}
    train(half, out=tmp_path / "run", device="cpu", reporter=Reporter())
    train(content, out=tmp_path / "run", resume=True, device="cpu", reporter=Reporter())
    whole, parts = fingerprint(run), fingerprint(tmp_path / "run")
    for key in ("resume/model.safetensors", "optimizer"):
        assert whole[key] == parts[key]


def read_recipe(run: Path) -> dict[str, Any]:
    import tomllib

    return tomllib.loads((run / "recipe.toml").read_text("utf-8"))


def test_s98_a_transformer_learns_a_toy_language() -> None:
    words, config = 11, TransformerConfig(**{**TRANSFORMER, "embed_dim": 24}, dropout=0.0)
    generator = torch.Generator().manual_seed(5)
    source = [torch.randint(3, 3 + words, (2 + n % 4,), generator=generator).tolist() for n in range(300)]
    target = [[word + words for word in reversed(sentence)] for sentence in source]
    batches = TokenBatches(source, target, max_tokens=200, pad_id=0, bos_id=1, eos_id=2, seed=1)
    model = TranslationModel(config, 3 + words, 3 + 2 * words)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    losses = []
    for epoch in range(36):
        total = tokens = 0.0
        for batch in batches.batches(epoch):
            loss = model.loss(batch)
            torch.autograd.backward(loss.smoothed / loss.tokens)
            optimizer.step()
            optimizer.zero_grad()
            total, tokens = total + float(loss.cross_entropy), tokens + loss.tokens
        losses.append(total / tokens)
    assert losses[0] > 2.0
    assert losses[-1] < 0.2  # blind to the source or to order, nothing below log(11) * words / tokens is left


@pytest.mark.parametrize("config", [RecurrentConfig(**SMALL), TransformerConfig(**TRANSFORMER)], ids=str)
def test_s21_tables_are_separate_unless_sharing_is_asked_for(config: Any) -> None:
    def tables(tie: str) -> list[int]:
        model = TranslationModel(type(config)(**{**config.model_dump(), "tie": tie}), 13, 13)
        modules = (model.encoder.embedding, model.decoder.embedding, model.decoder.output)
        return [id(module.weight) for module in modules]

    source, target, output = tables("none")
    assert len({source, target, output}) == 3
    source, target, output = tables("target")
    assert target == output != source
    assert len(set(tables("all"))) == 1


@pytest.mark.parametrize("config", [RecurrentConfig(**SMALL), TransformerConfig(**TRANSFORMER)], ids=str)
def test_s21_a_shared_table_learns_from_both_uses(config: Any) -> None:
    model = TranslationModel(type(config)(**{**config.model_dump(), "tie": "all"}), 13, 13)
    batch = TokenBatches([[3, 4]], [[5, 6]], max_tokens=9, pad_id=0, bos_id=1, eos_id=2).batch(
        torch.tensor([0])
    )
    torch.autograd.backward(model.loss(batch).smoothed)
    gradient = model.decoder.output.weight.grad
    assert gradient is not None
    # As output every row takes part; as source and target input rows 3, 4 (and 5) do once more.
    assert (gradient[1:].abs().sum(-1) > 0).all()
    assert model.decoder.output.weight[0].abs().max() == 0  # padding


@pytest.mark.parametrize("tie", ["none", "target", "all"])
def test_a_file_holds_tied_tables_once(run: Path, tmp_path: Path, tie: str) -> None:
    found = ModelFolder.load(run / "best")
    config = TransformerConfig(**{**TRANSFORMER, "tie": tie})
    model = TranslationModel(config, found.source_tokenizer.vocab_size, found.target_tokenizer.vocab_size)
    replace(found, model=model).save(tmp_path / "model")
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    rows = [name for name, tensor in tensors.items() if len(tensor) == found.source_tokenizer.vocab_size]
    assert len([name for name in rows if name.endswith("weight")]) == {"none": 3, "target": 2, "all": 1}[tie]
    again = ModelFolder.load(tmp_path / "model").model
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert isinstance(again.decoder, TransformerDecoder)
    assert (again.decoder.output.weight is again.decoder.embedding.weight) == (tie != "none")


def test_one_table_cannot_serve_two_vocabularies() -> None:
    config = RecurrentConfig(**{**SMALL, "tie": "all"})
    text = r"tie 'all' needs one vocabulary for both sides, got 11 source and 13 target tokens; set tokenizer"
    with pytest.raises(ValueError, match=text):
        TranslationModel(config, 11, 13)


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"architecture": "rnn"}, "model: .*'recurrent', 'transformer'"),
        ({**TRANSFORMER, "heads": 5}, "no such model can be built: embed_dim must be a multiple of heads"),
        ({**TRANSFORMER, "heads": 0}, "model.heads: .* greater than or equal to 1, got 0"),
        ({**TRANSFORMER, "cell": "gru"}, "model.cell: Extra inputs are not permitted, got 'gru'"),
        ({**TRANSFORMER, "layers": 1, "tie": "all"}, "model.safetensors does not fit config.json"),
    ],
)
def test_a_broken_shape_is_refused_in_one_line(
    run: Path, tmp_path: Path, model: dict[str, Any], text: str
) -> None:
    ModelFolder.load(run).save(tmp_path / "model")
    config = read_json(tmp_path / "model" / "config.json")
    write_json(tmp_path / "model" / "config.json", {**config, "model": model})
    with pytest.raises(FolderError, match=text):
        ModelFolder.load(tmp_path / "model")


def test_models_from_before_there_was_a_choice_are_recurrent(toy_run: Path, tmp_path: Path) -> None:
    ModelFolder.load(toy_run).save(tmp_path / "model")
    config = read_json(tmp_path / "model" / "config.json")
    del config["model"]["architecture"], config["model"]["tie"]
    write_json(tmp_path / "model" / "config.json", config)
    assert isinstance(ModelFolder.load(tmp_path / "model").model.config, RecurrentConfig)
