"""The data of one training: sentence pairs read, cleaned, split and turned into tokens."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from headlights._counted import counted
from headlights.translation.batches import TokenBatches
from headlights.translation.corpus import CorpusError, NonBlank, Pair, grammar, read
from headlights.translation.folders import FolderError
from headlights.translation.prepared import load_prepared
from headlights.translation.recipe import DataConfig, Recipe, RecipeError, TokenizerConfig
from headlights.translation.sentences import Sentences
from headlights.translation.subwords import SubwordDropout
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
        origins: Where each training pair is from, as "file:line"; "" for a pair that is from no file.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: TokenBatches
    valid: list[Pair]
    notes: tuple[str, ...]
    origins: Sequence[str]

    def name_pairs(self, indices: Sequence[int], most: int = 5) -> str:
        """Some training pairs, for a message.

        Args:
            indices: Their places in the training data, at least one.
            most: How many to name.

        Returns:
            Where each is from, in order: its file and line, or its number from 1 where there is no file.
        """
        names = [self.origins[index] or f"training pair {index + 1}" for index in sorted(indices)]
        others = len(names) - most
        return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")

    def fingerprints(self) -> tuple[str, str]:
        """What tells this data from other data, of as many pairs.

        Returns:
            Of the token ids to train on, in their order, and of the validation text.
        """
        valid = hashlib.blake2b(digest_size=8)
        for pair in self.valid:
            valid.update(repr((pair.source, pair.target)).encode("utf-8", "backslashreplace"))
        return self.train.fingerprint(), valid.hexdigest()

    def batches(self, pairs: Sequence[Pair], max_tokens: int) -> TokenBatches:
        """Put other pairs in batches, through the same tokenizers.

        Args:
            pairs: Sentence pairs, at least one; none is too long.
            max_tokens: Budget of a batch, padding counted.

        Returns:
            The batches.
        """
        source, target = self.source_tokenizer, self.target_tokenizer
        return TokenBatches(
            [encoded.ids for encoded in source.encode_batch(pair.source for pair in pairs)],
            [encoded.ids for encoded in target.encode_batch(pair.target for pair in pairs)],
            max_tokens=max_tokens,
            pad_id=target.pad_id,
            bos_id=target.bos_id,
            eos_id=target.eos_id,
        )


def load_data(recipe: Recipe, *, tokenizers: tuple[Tokenizer, Tokenizer] | None = None) -> TrainingData:
    """Read the sentence pairs of a recipe and make them ready for training.

    Args:
        recipe: Which files, which tokenizer, which limits.
        tokenizers: Source and target tokenizer of an earlier training; default: trained on the training
            pairs.

    Returns:
        Batches, validation pairs and tokenizers.

    Raises:
        CorpusError: A file cannot be read, or has too few pairs, or none is short enough.
        FolderError: The prepared folder cannot be used with this recipe.
        RecipeError: The built-in corpus cannot be that small.
    """
    if recipe.data.prepared:
        return _prepared(recipe, tokenizers)
    notes: list[str] = []
    train, valid = _pairs(recipe.data, recipe.training.seed, notes)
    source, target = tokenizers or train_tokenizers(recipe.tokenizer, train)
    batches = _training_batches(
        Sentences.of(encoded.ids for encoded in source.encode_batch(pair.source for pair in train)),
        Sentences.of(encoded.ids for encoded in target.encode_batch(pair.target for pair in train)),
        (source, target),
        recipe,
    )
    notes += _too_long(batches, recipe.data.max_length)
    origins = tuple(pair.origin for pair in train)
    return TrainingData(source, target, batches, valid, tuple(notes), origins)


def _prepared(recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer] | None) -> TrainingData:
    """The data of a prepared folder, which brings its tokenizers."""
    path = recipe.data.prepared
    data = load_prepared(path)
    source, target = data.source_tokenizer, data.target_tokenizer
    if tokenizers is None:
        _check_tokenizer(recipe, data.report["tokenizer"])
    elif not (tokenizers[0].same_as(source) and tokenizers[1].same_as(target)):
        raise FolderError(
            f"{path} has other tokenizers than the run began with; prepare the corpus with those of the "
            "model (headlights prepare --from MODEL), or train a new model"
        )
    batches = _training_batches(data.source, data.target, (source, target), recipe)
    notes = _too_long(batches, recipe.data.max_length)
    return TrainingData(source, target, batches, data.valid, notes, data.origins)


def _check_tokenizer(recipe: Recipe, prepared: dict[str, Any]) -> None:
    """Refuse a recipe that wants other tokenizers than a folder was prepared with."""
    wanted = recipe.tokenizer.model_dump()
    for key, value in prepared.items():
        if wanted.get(key) != value:
            raise FolderError(
                f"{recipe.data.prepared} was prepared with tokenizer.{key} = {value!r}, the recipe has "
                f"{wanted.get(key)!r}; set tokenizer.{key} in the recipe, or prepare the corpus again"
            )


def _training_batches(
    source: Sentences, target: Sentences, tokenizers: tuple[Tokenizer, Tokenizer], recipe: Recipe
) -> TokenBatches:
    """What is short enough to be trained on, in batches."""
    most = recipe.data.max_length
    if not bool((torch.maximum(source.lengths, target.lengths) <= most).any()):
        place = recipe.data.prepared or " and ".join(recipe.data.train) or "the built-in corpus"
        raise CorpusError(
            f"{place}: every sentence pair has a side of more than {most} tokens; raise data.max_length"
        )
    marks = tokenizers[1]
    return TokenBatches(
        source,
        target,
        max_tokens=recipe.training.batch_tokens,
        pad_id=marks.pad_id,
        bos_id=marks.bos_id,
        eos_id=marks.eos_id,
        seed=recipe.training.seed,
        max_length=most,
        changes=_subword_dropout(tokenizers, recipe.training.subword_dropout),
    )


def _subword_dropout(
    tokenizers: tuple[Tokenizer, Tokenizer], p: float
) -> tuple[SubwordDropout, SubwordDropout] | None:
    """What cuts the tokens of either side, if anything does."""
    if not p:
        return None
    source, target = tokenizers
    return SubwordDropout(source.parts(), p), SubwordDropout(target.parts(), p)


def _too_long(batches: TokenBatches, max_length: int) -> tuple[str, ...]:
    if not batches.dropped:
        return ()
    return (f"left out {counted(batches.dropped, 'training pair')} longer than {max_length} tokens",)


def _pairs(config: DataConfig, seed: int, notes: list[str]) -> tuple[list[Pair], list[Pair]]:
    """Training and validation pairs."""
    if not config.train:
        try:
            splits = grammar.splits(train=config.built_in, valid=config.held_out)
        except ValueError:
            raise RecipeError(
                f"data.built_in: {config.built_in} pairs teach too few words to validate and test with; set "
                "1000 or more"
            ) from None
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
        every = len(train)
        train, valid = _hold_out(train, config.held_out, seed)
        notes.append(f"no validation file: held out {len(valid)} of the training pairs (seed {seed})")
        if twins := every - len(train) - len(valid):
            notes.append(f"left out {counted(twins, 'training pair')} that are held out, too")
        if not train:
            raise CorpusError(
                f"{' and '.join(config.train)}: all pairs say the same, and none is left to train on; give "
                "other pairs to validate with"
            )
    return train, valid


def _read(paths: Sequence[str], purpose: str, notes: list[str]) -> list[Pair]:
    filled = NonBlank(read(paths))
    pairs = list(filled)
    if filled.dropped:
        notes.append(f"left out {counted(filled.dropped, f'{purpose} pair')} with a blank side")
    if not pairs:
        raise CorpusError(f"no sentence pairs in {' and '.join(paths)}; {purpose} needs at least one")
    return pairs


def _hold_out(pairs: list[Pair], count: int, seed: int) -> tuple[list[Pair], list[Pair]]:
    """Split off `count` pairs by seed, at most a tenth but at least one; both parts keep their order.

    Pairs that say the same as one that is held out are left out: they would be trained on, too.
    """
    chosen = set(random.Random(seed).sample(range(len(pairs)), min(count, max(1, len(pairs) // 10))))
    held = [pair for index, pair in enumerate(pairs) if index in chosen]
    texts = {(pair.source, pair.target) for pair in held}
    return [pair for pair in pairs if (pair.source, pair.target) not in texts], held


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
