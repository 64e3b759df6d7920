"""Recipes: everything a training depends on, as checked TOML."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from headlights._errors import InputError
from headlights.translation.architectures import ARCHITECTURES, ModelConfig, RecurrentConfig
from headlights.translation.forcing import ForcingConfig

_LEAST_BPE = 259
LIMITS = ("max_updates", "max_epochs", "max_minutes")


class RecipeError(InputError):
    """A recipe that cannot be used; the message is one line that names the key and the likely fix."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(_Section):
    """Which sentence pairs.

    Attributes:
        train: One file of pairs (`.tsv`, `.jsonl`), or a source and a target file; `.gz` of any. Empty: the
            built-in English-Italian corpus.
        prepared: A folder written by `headlights prepare`, in the place of `train` and `valid`.
        valid: The same for validation. Empty: `held_out` pairs are taken from the training data, by seed.
        held_out: Validation pairs to hold out, or to generate, where no file is given.
        max_length: Longest side of a training pair, in tokens; longer pairs are left out and counted.
        built_in: Training pairs to generate where no file is given.
    """

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    prepared: str = ""
    held_out: int = Field(500, ge=1)
    max_length: int = Field(100, ge=1)
    built_in: int = Field(12_000, ge=100)

    @field_validator("train", "valid", mode="before")
    @classmethod
    def _one_file_needs_no_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) and value else value

    @model_validator(mode="after")
    def _files_go_together(self) -> "DataConfig":
        for name in ("train", "valid"):
            if len(getattr(self, name)) > 2:
                raise ValueError(
                    f"{name}: expected a file of pairs or a source and a target file, "
                    f"got {len(getattr(self, name))} files"
                )
        if self.valid and not (self.train or self.prepared):
            raise ValueError(
                "valid: needs train beside it: without files, the built-in corpus brings its own pairs"
            )
        if self.prepared and (self.train or self.valid):
            raise ValueError("prepared: such a folder brings its own pairs; expected no train and no valid")
        return self


class TokenizerConfig(_Section):
    """How text becomes tokens.

    Attributes:
        kind: "bpe" (byte-level, any text survives) or "word" (rare words become unknown).
        vocab_size: Tokens at most, per tokenizer.
        joint: One tokenizer for both languages.
        lowercase: Lower-case everything first.
    """

    kind: Literal["bpe", "word"] = "bpe"
    vocab_size: int = Field(8000, ge=8)
    joint: bool = False
    lowercase: bool = False

    @model_validator(mode="after")
    def _holds_the_bytes(self) -> "TokenizerConfig":
        if self.kind == "bpe" and self.vocab_size < _LEAST_BPE:
            raise ValueError(
                f"vocab_size must be at least {_LEAST_BPE} with kind 'bpe', for the bytes and the special "
                f"tokens, got {self.vocab_size}; a few thousand is usual"
            )
        return self


class TrainingConfig(_Section):
    """How to train; the first limit reached ends it.

    Attributes:
        max_updates: Updates at most, in total; None: no limit.
        max_epochs: Passes over the data at most; None: no limit.
        max_minutes: Minutes of training at most, validation counted; None: no limit.
        batch_tokens: Tokens per batch, padding counted: longest side times sentences.
        accumulate: Batches per update, their gradients added up: as if `batch_tokens` were that many times
            larger, in the memory of one batch. The last update of an epoch may have fewer.
        precision: Numbers that losses and gradients are computed with: "fp32", or "bf16" where it is exact
            enough (torch's autocast); parameters and their sums stay in 32 bits.
        learning_rate: The highest, reached after the warm-up.
        warmup_updates: Updates over which the rate rises from 0.
        schedule: How the rate falls: along half a "cosine" to the end of the training, or with the
            "inverse-sqrt" of the number of updates, whatever the end.
        final_rate: What the rate falls to, as a share of the highest: at the end, or at the least.
        weight_decay: AdamW's, per update and unit of the rate.
        label_smoothing: Share of the target probability spread evenly over the vocabulary.
        subword_dropout: Probability of cutting a token into the two that it was merged from, and these again,
            in [0, 1); anew in each epoch. For little data, with a vocabulary of kind "bpe".
        coverage: Weight of the penalty on source tokens that get more or less than 1 of all attention.
        clip: Largest norm of the gradient.
        average: Updates that an average of the parameters looks back over; the average is judged beside the
            model, and is the best model if it is. 0: no average.
        validations: How often to validate, spread evenly over the training.
        patience: Stop early after that many validations without a better one; None: train to the limit.
        tensorboard: Also write the log's numbers for TensorBoard, into `tensorboard` in the run folder.
        start: A model folder, or the run folder of a training, to start from: its model, which also decides
            what the recipe leaves out of its sections `model` and `tokenizer`, with a fresh optimiser. Empty:
            a new model.
        seed: Of everything random.
    """

    max_updates: int | None = Field(None, ge=1)
    max_epochs: int | None = Field(None, ge=1)
    max_minutes: float | None = Field(None, gt=0)
    batch_tokens: int = Field(2048, ge=1)
    accumulate: int = Field(1, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    learning_rate: float = Field(2e-3, gt=0)
    warmup_updates: int = Field(100, ge=0)
    schedule: Literal["cosine", "inverse-sqrt"] = "cosine"
    final_rate: float = Field(0.02, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    subword_dropout: float = Field(0.0, ge=0, lt=1)
    coverage: float = Field(0.0, ge=0)
    clip: float = Field(1.0, gt=0)
    average: int = Field(0, ge=0)
    validations: int = Field(10, ge=1)
    patience: int | None = Field(None, ge=1)
    tensorboard: bool = False
    start: str = ""
    seed: int = Field(1, ge=0, lt=2**63)

    @model_validator(mode="after")
    def _ends(self) -> "TrainingConfig":
        if self.max_updates is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError(
                "one of max_updates, max_epochs and max_minutes must be set, or training never ends"
            )
        return self


class Recipe(_Section):
    """One training, completely.

    Attributes:
        data: Which sentence pairs.
        tokenizer: How text becomes tokens.
        model: The architecture of the model, recurrent unless it says "transformer", and its sizes.
        forcing: How often it reads the given target in training, and how often its own words.
        training: How to train it.
    """

    data: DataConfig = Field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    model: ModelConfig = Field(default_factory=RecurrentConfig)
    forcing: ForcingConfig = Field(default_factory=ForcingConfig)
    training: TrainingConfig

    @model_validator(mode="after")
    def _sections_fit(self) -> "Recipe":
        if self.model.tie == "all" and not self.tokenizer.joint:
            raise ValueError(
                "model.tie 'all' is one table for both languages, which needs tokenizer.joint = true"
            )
        if self.training.coverage and not any(self.model.attention_shape):
            raise ValueError(
                "training.coverage is a penalty on attention, which model.score = 'none' has not; set it to 0"
            )
        if self.training.subword_dropout and self.tokenizer.kind != "bpe":
            raise ValueError(
                "training.subword_dropout cuts tokens that were merged from others, which needs "
                "tokenizer.kind = 'bpe'"
            )
        return self

    def changed(self, values: Mapping[str, Any], assignments: Iterable[str] = ()) -> "Recipe":
        """This recipe with some keys set.

        Args:
            values: New values by `section.key`. A new limit of the training replaces all of its limits, a new
                architecture all keys of the model.
            assignments: Further keys, each `section.key=value` with the value as TOML (`model.layers=2`) or
                as bare text.

        Returns:
            The checked recipe.

        Raises:
            RecipeError: A key or value is wrong.
        """
        content = self.model_dump(exclude_unset=True)
        changes = {**values, **dict(map(_assignment, assignments))}
        if any(f"training.{limit}" in changes for limit in LIMITS):
            content["training"].update(dict.fromkeys(LIMITS))
        if changes.get("model.architecture", self.model.architecture) != self.model.architecture:
            content["model"] = {}
        for key, value in changes.items():
            section, _, leaf = key.partition(".")
            content.setdefault(section, {})[leaf] = value
        return check_recipe(content, "recipe")


def built_in_recipes() -> list[str]:
    """List the recipes that come with the package.

    Returns:
        Their names, sorted.
    """
    folder = resources.files("headlights.translation") / "recipes"
    return sorted(
        entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")
    )


def load_recipe(name: str | Path) -> Recipe:
    """Read a recipe.

    Args:
        name: A TOML file, or the name of a recipe that comes with the package.

    Returns:
        The checked recipe.

    Raises:
        RecipeError: The file cannot be read, or a key or value is wrong.
    """
    return check_recipe(_read(name), str(name))


def check_recipe(content: dict[str, Any], name: str) -> Recipe:
    """Check a recipe's content.

    Args:
        content: Sections of keys.
        name: What to call it in messages.

    Returns:
        The checked recipe.

    Raises:
        RecipeError: A key or value is wrong; the message names the key, and the nearest one if it is unknown.
    """
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        raise RecipeError(f"{name}: {_complaint(error)}") from None


def _complaint(error: ValidationError) -> str:
    """The most telling of the errors, in one line; an unknown key first, for it may be a missing one."""
    errors = error.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    place = [str(part) for part in first["loc"]]
    known: Any = Recipe
    if place[:1] == ["model"] and len(place) > 1:  # pydantic puts the architecture between section and key
        known = ARCHITECTURES[place.pop(1)]
    elif len(place) > 1:
        known = Recipe.model_fields[place[0]].annotation
    key = ".".join(place)
    match first["type"]:
        case "extra_forbidden":
            for name, other in ARCHITECTURES.items() if place[0] == "model" else ():
                if place[-1] in other.model_fields:
                    return f"{key} is a key of model.architecture = '{name}' only, which this model has not"
            near = difflib.get_close_matches(place[-1], known.model_fields, n=1, cutoff=0.0)
            return f"unknown key {key}; did you mean {'.'.join([*place[:-1], *near])}?"
        case "missing":
            return f"{key} is missing; set at least one of its limits, for example {key}.max_minutes = 20"
        case "union_tag_invalid":
            names = " or ".join(map(repr, ARCHITECTURES))
            return f"{key}.architecture: input should be {names}, got {first['ctx']['tag']!r}"
        case "value_error":  # our own words, perhaps of several keys at once
            return ": ".join(filter(None, (key, first["msg"].removeprefix("Value error, "))))
        case _:
            return f"{key}: {first['msg'][:1].lower()}{first['msg'][1:]}, got {first['input']!r}"


def _read(name: str | Path) -> dict[str, Any]:
    path = Path(name)
    known = built_in_recipes()
    try:
        if str(name) in known:
            text = (resources.files("headlights.translation") / "recipes" / f"{name}.toml").read_text("utf-8")
        else:
            text = path.read_text("utf-8")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise RecipeError(f"recipe {str(name)!r} is neither a file nor one of {', '.join(known)}") from None
    except OSError as error:
        raise RecipeError(f"{name}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # neither UTF-8 nor TOML, or a name that no file can have
        raise RecipeError(f"{name}: cannot be read as TOML: {error}") from None


def _assignment(text: str) -> tuple[str, Any]:
    """Key and value of `section.key=value`."""
    key, equals, value = text.partition("=")
    section, dot, leaf = key.strip().partition(".")
    if not (section and equals and dot and leaf):
        raise RecipeError(f"{text!r}: expected SECTION.KEY=VALUE, for example model.layers=2")
    return key.strip(), _value(value.strip())


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none (paths and names need no quotes)."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
