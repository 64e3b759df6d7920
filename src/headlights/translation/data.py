"""The data of one training: sentence pairs read, cleaned, split and turned into tokens."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headlights.translation.batches import TokenBatches
from headlights.translation.corpus import CorpusError, NonBlank, Pair, grammar, read
from headlights.translation.folders import FolderError
from headlights.translation.prepared import load_prepared
from headlights.translation.recipe import DataConfig, Recipe, TokenizerConfig
from headlights.translation.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TrainingData:
    """What a training needs of its data.

    Attributes:
        source_tokenizer: For source text.
        target_tokenizer: For target text; the same object if they are joint.
        train: Batches to train on.
        valid: Pairs to validate with.
        notes: What was done to the data and should be said, a line each.
        origins: "file:line" of each training pair; empty for a prepared folder.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: TokenBatches
    valid: list[Pair]
    notes: tuple[str, ...]
    origins: tuple[str, ...] = ()

    def name_pairs(self, indices: Sequence[int], most: int = 5) -> str:
        """Some training pairs, for a message.

        Args:
            indices: Their places in the training data, at least one.
            most: How many to name.

        Returns:
            Where each is from, in order: its file and line, or its number from 1 where there is no file.
        """
        names = [
            (self.origins[index] if self.origins else "") or f"training pair {index + 1}"
            for index in sorted(indices)
        ]
        others = len(names) - most
        return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")

    def batches(self, pairs: Sequence[Pair], max_tokens: int) -> TokenBatches:
        """Put other pairs in batches, through the same tokenizers.

        Args:
            pairs: Sentence pairs, at least one; none is too long.
            max_tokens: Budget of a batch, padding counted.

        Returns:
            The batches.
        """
        return _batches(self.source_tokenizer, self.target_tokenizer, pairs, max_tokens)


def load_data(recipe: Recipe, *, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> TrainingData:
    """Read the sentence pairs of a recipe and make them ready for training.

    Args:
        recipe: Which files, which tokenizer, which limits.
        tokenizers: Source and target tokenizer of an earlier training; default: trained on the training
            pairs.

    Returns:
        Batches, validation pairs and tokenizers.

    Raises:
        CorpusError: A file cannot be read, or has too few pairs.
        FolderError: The prepared folder cannot be used with this recipe.
        ValueError: Every training pair is longer than `max_length`, or the vocabulary is too small for its
            kind.
    """
    if recipe.data.prepared:
        return _prepared(recipe, tokenizers)
    notes: list[str] = []
    train, valid = _pairs(recipe.data, recipe.training.seed, notes)
    source, target = tokenizers or train_tokenizers(recipe.tokenizer, train)
    batches = _batches(
        source, target, train, recipe.training.batch_tokens, recipe.training.seed, recipe.data.max_length
    )
    notes += _too_long(batches, recipe.data.max_length)
    origins = tuple(pair.origin for pair in train)
    return TrainingData(source, target, batches, valid, tuple(notes), origins)


def _prepared(recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer] | None) -> TrainingData:
    """The data of a prepared folder, which brings its tokenizers."""
    path = recipe.data.prepared
    data = load_prepared(path)
    source, target = data.source_tokenizer, data.target_tokenizer
    wanted = recipe.tokenizer.model_dump()
    for key, value in data.report["tokenizer"].items():
        if wanted.get(key) != value:
            raise FolderError(
                f"{path} was prepared with tokenizer.{key} = {value!r}, the recipe has {wanted.get(key)!r}; "
                f"set tokenizer.{key} in the recipe, or prepare the corpus again"
            )
    if tokenizers is not None and not (tokenizers[0].same_as(source) and tokenizers[1].same_as(target)):
        raise FolderError(f"{path} has other tokenizers than the run began with; train into a new folder")
    batches = TokenBatches(
        data.source,
        data.target,
        max_tokens=recipe.training.batch_tokens,
        pad_id=target.pad_id,
        bos_id=target.bos_id,
        eos_id=target.eos_id,
        seed=recipe.training.seed,
        max_length=recipe.data.max_length,
    )
    return TrainingData(source, target, batches, data.valid, _too_long(batches, recipe.data.max_length))


def _too_long(batches: TokenBatches, max_length: int) -> tuple[str, ...]:
    if not batches.dropped:
        return ()
    return (f"left out {batches.dropped} training pairs longer than {max_length} tokens",)


def _pairs(config: DataConfig, seed: int, notes: list[str]) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs."""
    if not config.train:
        splits = grammar.splits(train=config.built_in, valid=config.held_out)
        return list(splits.train), list(splits.valid)
    train = _read(config.train, "training", notes)
    if config.valid:
        valid = _read(config.valid, "validation", notes)
    else:
        if len(train) < 2:
            raise CorpusError(
                f"only one sentence pair in {' and '.join(config.train)} and no validation file; training "
                "needs at least two, one of them to validate with"
            )
        train, valid = _hold_out(train, config.held_out, seed)
        notes.append(f"no validation file: held out {len(valid)} of the training pairs (seed {seed})")
    return train, valid


def _read(paths: Sequence[str], purpose: str, notes: list[str]) -> list[Pair]:
    filled = NonBlank(read(paths))
    pairs = list(filled)
    if filled.dropped:
        notes.append(f"left out {filled.dropped} {purpose} pairs with a blank side")
    if not pairs:
        raise CorpusError(f"no sentence pairs in {' and '.join(paths)}; {purpose} needs at least one")
    return pairs


def _hold_out(pairs: list[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split off `count` pairs by seed, at most a tenth but at least one; both parts keep their order."""
    chosen = set(random.Random(seed).sample(range(len(pairs)), min(count, max(1, len(pairs) // 10))))
    return (
        [pair for index, pair in enumerate(pairs) if index not in chosen],
        [pair for index, pair in enumerate(pairs) if index in chosen],
    )


def train_tokenizers(config: TokenizerConfig, pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Learn the tokenizers of a recipe.

    Args:
        config: Which kind, and whether one serves both sides.
        pairs: The text to learn from.

    Returns:
        Source and target tokenizer; one object if they are joint.

    Raises:
        ValueError: The vocabulary is too small for its kind.
    """

    def learn(texts: Iterable[str]) -> Tokenizer:
        return Tokenizer.train(
            texts, kind=config.kind, vocab_size=config.vocab_size, lowercase=config.lowercase
        )

    if config.joint:
        joint = learn(text for pair in pairs for text in (pair.source, pair.target))
        return joint, joint
    return learn(pair.source for pair in pairs), learn(pair.target for pair in pairs)


def _batches(
    source: Tokenizer,
    target: Tokenizer,
    pairs: Sequence[Pair],
    max_tokens: int,
    seed: int = 0,
    max_length: int | None = None,
) -> TokenBatches:
    return TokenBatches(
        [encoded.ids for encoded in source.encode_batch(pair.source for pair in pairs)],
        [encoded.ids for encoded in target.encode_batch(pair.target for pair in pairs)],
        max_tokens=max_tokens,
        pad_id=target.pad_id,
        bos_id=target.bos_id,
        eos_id=target.eos_id,
        seed=seed,
        max_length=max_length,
    )
