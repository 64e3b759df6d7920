"""`Translator`: text in, translations with their alignment out."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from headlights.translation.alignment import Head, check_head
from headlights.translation.batches import SourceBatch, source_batches
from headlights.translation.corpus import is_blank
from headlights.translation.ensemble import Ensemble, check_alike
from headlights.translation.folders import ModelFolder
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.prefixes import encode_prefixes
from headlights.translation.sampling import SamplingOptions, sample, with_given
from headlights.translation.scoring import GivenPairs, TargetScore, force_batch, score_batch
from headlights.translation.search import SearchOptions, search
from headlights.translation.side_by_side import side_by_side
from headlights.translation.translations import Translation, Wording


class Translator:
    """A trained model, or several that decode together, ready to translate.

    An ensemble gives each token the mean of its models' probabilities. Its attention is the mean over each
    model's layers and heads, and then over the models that have attention, so that it has one layer and head.

    Args:
        folder: Model and tokenizers.
        *others: Further models with the same tokenizers.
        device: Where to compute; default: where a GPU is present, there, else the CPU.
        dtype: Numbers to compute with, such as torch.bfloat16, which takes half the memory and, where the
            processor has products of it, less time. Default: the model's, float32.

    Attributes:
        device: Where it computes.
        model: The model; of several, the first.
        source_tokenizer: For source text.
        target_tokenizer: For target text.
        training: How the (first) model was trained.

    Raises:
        InputError: The models have not the same tokenizers.
        ValueError: `dtype` is neither float32 nor bfloat16 nor float64.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *others: ModelFolder,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if dtype not in (None, torch.float32, torch.bfloat16, torch.float64):
            raise ValueError(f"dtype must be torch.float32, torch.bfloat16 or torch.float64, got {dtype}")
        check_alike([folder, *others], [f"model {n}" for n in range(1, len(others) + 2)])
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        models = [each.model.to(self.device, dtype).eval() for each in (folder, *others)]
        self.model = models[0]
        self._used = Ensemble(models) if others else self.model
        self.source_tokenizer, self.target_tokenizer = folder.source_tokenizer, folder.target_tokenizer
        self.training = folder.training

    @classmethod
    def load(
        cls,
        folder: str | Path | Sequence[str | Path],
        *,
        device: str | torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> "Translator":
        """Load a model folder, or the best model of a run folder; or several, which then decode together.

        Args:
            folder: A folder made by training; or a list of such folders, whose models have the same
                tokenizers.
            device: Where to compute; default: where a GPU is present, there, else the CPU.
            dtype: Numbers to compute with, as for the class.

        Returns:
            The translator.

        Raises:
            FolderError: The folder is missing, incomplete or broken; the message says what to do.
            InputError: The models have not the same tokenizers.
            ValueError: The list is empty, or `dtype` is no type to translate with.
        """
        paths = [folder] if isinstance(folder, str | Path) else list(folder)
        if not paths:
            raise ValueError("folder must be a folder or a list of one or more, got an empty list")
        folders = [ModelFolder.load(Path(path)) for path in paths]
        check_alike(folders, [str(path) for path in paths])
        return cls(*folders, device=device, dtype=dtype)

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers of the attention to the source, and heads of each; (0, 0) without attention."""
        return self._used.attention_shape

    def translate(
        self,
        lines: Sequence[str],
        *,
        options: SearchOptions | SamplingOptions | None = None,
        beam: int | None = None,
        length_penalty: float | None = None,
        coverage_penalty: float | None = None,
        max_ratio: float | None = None,
        max_extra: int | None = None,
        n_best: int | None = None,
        patience: float | None = None,
        prefixes: Sequence[str] | None = None,
        replace_unknown: bool = False,
        alignment: bool = True,
        attention: bool = False,
        align_head: Head | None = None,
        batch_tokens: int = 4096,
        workers: int = 1,
    ) -> list[Translation]:
        """Translate lines of text.

        Args:
            lines: One sentence each; a blank one stays empty and never meets the model.
            options: How to translate: a `search.SearchOptions` for greedy or beam search, or a
                `sampling.SamplingOptions` to draw at random. Default: beam search with a beam of 5. The
                arguments from `beam` to `patience` take the place of single values of it.
            beam: Hypotheses kept per sentence; 1 is greedy search.
            length_penalty: Power of the length that divides a score.
            coverage_penalty: Weight of the penalty on source tokens that were not looked at, as in
                `SearchOptions`; needs attention.
            max_ratio: Longest translation, in target tokens per source token.
            max_extra: Tokens allowed beyond that.
            n_best: Translations per line; those after the first are its `alternatives`.
            patience: Be done with a line when `beam` times that many translations of it have ended.
            prefixes: What each translation begins with, one text per line, blank for none. A text is taken as
                whole words, and white space around it does not count; the model goes on behind it, with a new
                word or with more of the last. The score counts it. Lower-cased if the model's text is; words
                that the model does not know stay as they are.
            replace_unknown: Write the source word that was looked at most in the place of an unknown word;
                only vocabularies of kind "word" have any, and `tokens` still says where.
            alignment: Tell which words belong together and with what `weights`; without it a Transformer is
                faster.
            attention: Keep the attention between tokens as well.
            align_head: (layer, head), from 0: whose attention `weights`, `alignment` and `replace_unknown` go
                by. Default: the mean of all.
            batch_tokens: Source tokens translated at once, padding counted and beam not.
            workers: On a processor: translate so many batches side by side, which share `batch_tokens`, a
                thread each. With many lines that is faster than one batch by all threads, the more so where
                other programs run. What is set for the calling thread alone, such as `torch.autocast` or
                `headlights.observe`, does not reach them.

        Returns:
            One translation per line, in order.

        Raises:
            TypeError: `lines` or `prefixes` is a single text, or holds something that is no text.
            ValueError: A value is out of range or does not go with others, the model has no attention for it
                or no such head, or there are not as many prefixes as lines.
        """
        given = {
            "beam": beam,
            "length_penalty": length_penalty,
            "coverage_penalty": coverage_penalty,
            "max_ratio": max_ratio,
            "max_extra": max_extra,
            "n_best": n_best,
            "patience": patience,
            "need_weights": alignment,
        }
        chosen = with_given(options, given)
        if not alignment and (replace_unknown or attention or align_head is not None):
            raise ValueError(
                "alignment=False leaves replace_unknown, attention and align_head nothing to go by"
            )
        _check_texts("lines", lines)
        self._check_head(align_head)
        self._check_workers(workers)
        if replace_unknown and not any(self.attention_shape):
            raise ValueError("replace_unknown: the model was trained without attention; leave it out")
        if replace_unknown and self.target_tokenizer.unk_id is None:
            raise ValueError("replace_unknown: a vocabulary of pieces writes any word; leave it out")
        if batch_tokens < 1:
            raise ValueError(f"batch_tokens must be at least 1, got {batch_tokens}")
        if prefixes is not None:
            _check_texts("prefixes", prefixes)
        begun = encode_prefixes(prefixes, len(lines), self.target_tokenizer)
        wording = self._wording(attention=attention, align_head=align_head, replace_unknown=replace_unknown)
        results = [Translation("") for _ in lines]
        encoded = self.source_tokenizer.encode_batch(lines)
        filled = [index for index, line in enumerate(lines) if not is_blank(line)]
        ids = [encoded[index].ids for index in filled]
        source, most = self.source_tokenizer, -(-batch_tokens // workers)
        batches = source_batches(
            ids, max_tokens=most, pad_id=source.pad_id, eos_id=source.eos_id, workers=workers
        )

        def find(batch: SourceBatch) -> list[list[Hypothesis]]:
            places = [filled[place] for place in batch.indices.tolist()]
            return self._found(batch, chosen, places, [begun[index].ids for index in places])

        for batch, found in side_by_side(find, list(batches), workers):
            for place, hypotheses in zip(batch.indices.tolist(), found, strict=True):
                index = filled[place]
                best, *rest = [wording.found(encoded[index], each, begun[index]) for each in hypotheses]
                results[index] = replace(best, alternatives=tuple(rest))
        return results

    @torch.no_grad()
    def _found(
        self,
        batch: SourceBatch,
        options: SearchOptions | SamplingOptions,
        lines: Sequence[int],
        prefixes: Sequence[Sequence[int]],
    ) -> list[list[Hypothesis]]:
        """Encode the sentences of a batch, whose numbers are `lines`, and search or draw."""
        batch, target = batch.to(self.device), self.target_tokenizer
        memory = self._used.encoder(batch.source, batch.source_lengths)
        decoder, special = self._used.decoder, (target.pad_id, target.bos_id)
        ends = {"bos_id": target.bos_id, "eos_id": target.eos_id}
        if isinstance(options, SamplingOptions):
            return sample(decoder, memory, options, **ends, forbidden=special, prefixes=prefixes, lines=lines)
        return search(decoder, memory, options, **ends, forbidden=special, prefixes=prefixes)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        attention: bool = False,
        align_head: Head | None = None,
        batch_tokens: int = 4096,
    ) -> list[Translation]:
        """Force given translations and see where the model looks while writing them.

        Args:
            sources: Source sentences.
            targets: A translation of each.
            attention: Keep the attention between tokens as well.
            align_head: (layer, head), from 0: whose attention `weights` and `alignment` go by. Default: the
                mean of all.
            batch_tokens: Tokens computed at once, padding counted.

        Returns:
            The given translations with scores and alignment, in order; empty where either side is blank.

        Raises:
            TypeError: `sources` or `targets` is a single text, or holds something that is no text.
            ValueError: There are not as many targets as sources, or the model has no such head.
            InputError: The model's logits are NaN.
        """
        self._check_head(align_head)
        wording = self._wording(attention=attention, align_head=align_head)
        results = [Translation(target) for target in targets]
        pairs = self._given("align", sources, targets)
        for batch in pairs.batches(batch_tokens, self.target_tokenizer):
            forced = force_batch(self._used, batch.to(self.device))
            for row, hypothesis in zip(batch.indices.tolist(), forced, strict=True):
                place = pairs.places[row]
                results[place] = wording.given(
                    pairs.sources[row], pairs.targets[row], hypothesis, text=targets[place]
                )
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, batch_tokens: int = 4096
    ) -> list[TargetScore]:
        """Tell how probable given translations are, as `align` does, without looking at attention.

        Args:
            sources: Source sentences.
            targets: A translation of each.
            batch_tokens: Tokens computed at once, padding counted.

        Returns:
            One score per pair, in order; of no tokens where either side is blank.

        Raises:
            TypeError: `sources` or `targets` is a single text, or holds something that is no text.
            ValueError: There are not as many targets as sources.
            InputError: The model's logits are NaN.
        """
        results = [TargetScore(0.0, 0) for _ in targets]
        pairs = self._given("score", sources, targets)
        for batch in pairs.batches(batch_tokens, self.target_tokenizer):
            scores = score_batch(self._used, batch.to(self.device))
            lengths = batch.target_lengths.tolist()
            for row, score, length in zip(batch.indices.tolist(), scores, lengths, strict=True):
                results[pairs.places[row]] = TargetScore(score, length)
        return results

    def _given(self, use: str, sources: Sequence[str], targets: Sequence[str]) -> GivenPairs:
        """Given pairs as tokens, checked."""
        _check_texts("sources", sources)
        _check_texts("targets", targets)
        if len(sources) != len(targets):
            raise ValueError(
                f"{use} needs one target per source, got {len(sources)} sources, {len(targets)} targets"
            )
        return GivenPairs.encode(sources, targets, self.source_tokenizer, self.target_tokenizer)

    def _wording(self, *, attention: bool, align_head: Head | None, replace_unknown: bool = False) -> Wording:
        return Wording(
            self.source_tokenizer,
            self.target_tokenizer,
            attention=attention,
            align_head=align_head,
            replace_unknown=replace_unknown,
        )

    def _check_workers(self, workers: int) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if workers > 1 and self.device.type != "cpu":
            raise ValueError(f"workers are for a processor, got {workers} on {self.device}; leave it out")

    def _check_head(self, head: Head | None) -> None:
        if head is not None:
            check_head(head, *self.attention_shape)


def _check_texts(name: str, texts: Sequence[str]) -> None:
    """A single text is a sequence of its characters, and would be translated letter by letter."""
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of texts, got one text; give [{texts[:40]!r}]")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"{name}[{place}] must be a text, got {type(text).__name__}; give '' where there is none"
            )
