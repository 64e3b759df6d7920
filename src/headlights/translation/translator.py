"""`Translator`: text in, translations with their alignment out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headlights.translation.alignment import (
    Head,
    Links,
    check_head,
    copy_unknown,
    strongest_links,
    word_weights,
)
from headlights.translation.batches import source_batches
from headlights.translation.corpus import is_blank
from headlights.translation.folders import ModelFolder
from headlights.translation.scoring import GivenPairs, TargetScore, force_batch, score_batch
from headlights.translation.search import Hypothesis, SearchOptions, search
from headlights.translation.tokenizer import Encoded
from headlights.translation.words import join_words

END = "</s>"  # how the end mark is shown beside attention


@dataclass(frozen=True, slots=True)
class Translation:
    """One translated sentence and where the model looked.

    Attributes:
        text: The translation.
        words: Its words.
        source_words: Words of the source sentence.
        alignment: 0-based (source word, target word): for each target word the source word it looked at most;
            empty without attention.
        weights: Attention between the words, summed over a source word's tokens and averaged over a target
            word's, layers and heads, or of the one head that was asked for; shape (target words, source
            words); None without attention.
        score: Summed natural log-probability, end mark included (but where the limit cut the sentence).
        normalised_score: What ranked it: the score divided by length to the power of the length penalty.
        attention: Shape (L, H, N, M) over `tokens` and `source_tokens`; None unless asked for.
        tokens: Target tokens as text, the end mark last unless the length limit cut the sentence.
        source_tokens: Source tokens as text, the end mark last.
        alternatives: Further translations, best first, if more than one was asked for.
    """

    text: str
    words: tuple[str, ...] = ()
    source_words: tuple[str, ...] = ()
    alignment: Links = ()
    weights: Tensor | None = None
    score: float = 0.0
    normalised_score: float = 0.0
    attention: Tensor | None = None
    tokens: tuple[str, ...] = ()
    source_tokens: tuple[str, ...] = ()
    alternatives: tuple["Translation", ...] = ()


class Translator:
    """A trained model, ready to translate.

    Args:
        folder: Model and tokenizers.
        device: Where to compute; default: where a GPU is present, there, else the CPU.
    """

    def __init__(self, folder: ModelFolder, *, device: str | torch.device | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.model = folder.model.to(self.device).eval()
        self.source_tokenizer, self.target_tokenizer = folder.source_tokenizer, folder.target_tokenizer
        self.training = folder.training

    @classmethod
    def load(cls, folder: str | Path, *, device: str | torch.device | None = None) -> "Translator":
        """Load a model folder, or the best model of a run folder.

        Args:
            folder: A folder made by training.
            device: Where to compute; default: where a GPU is present, there, else the CPU.

        Returns:
            The translator.

        Raises:
            FolderError: The folder is missing, incomplete or broken; the message says what to do.
        """
        return cls(ModelFolder.load(Path(folder)), device=device)

    @property
    def attention_shape(self) -> tuple[int, int]:
        """Layers of the model's attention to the source, and heads of each; (0, 0) without attention."""
        return self.model.config.attention_shape

    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int = 5,
        length_penalty: float = 1.0,
        coverage_penalty: float = 0.0,
        n_best: int = 1,
        replace_unknown: bool = False,
        attention: bool = False,
        align_head: Head | None = None,
        batch_tokens: int = 4096,
    ) -> list[Translation]:
        """Translate lines of text.

        Args:
            lines: One sentence each; a blank one stays empty and never meets the model.
            beam: Hypotheses kept per sentence; 1 is greedy search.
            length_penalty: Power of the length that divides a score.
            coverage_penalty: Weight of the penalty on source tokens that were not looked at, as in
                `SearchOptions`; needs attention.
            n_best: Translations per line; those after the first are its `alternatives`.
            replace_unknown: Write the source word that was looked at most in the place of an unknown word;
                only vocabularies of kind "word" have any, and `tokens` still says where.
            attention: Keep the attention between tokens as well.
            align_head: (layer, head), from 0: whose attention `weights`, `alignment` and `replace_unknown` go
                by. Default: the mean of all.
            batch_tokens: Source tokens translated at once, padding and beam not counted.

        Returns:
            One translation per line, in order.

        Raises:
            TypeError: `lines` is a single text.
            ValueError: `beam`, `n_best` or a penalty is out of range, or the model has no attention for it or
                no such head.
        """
        _check_texts("lines", lines)
        self._check_head(align_head)
        options = SearchOptions(
            beam=beam,
            length_penalty=length_penalty,
            coverage_penalty=coverage_penalty,
            n_best=n_best,
            need_weights=True,
        )
        results = [Translation("") for _ in lines]
        encoded = self.source_tokenizer.encode_batch(lines)
        filled = [index for index, line in enumerate(lines) if not is_blank(line)]
        ids = [encoded[index].ids for index in filled]
        source, target = self.source_tokenizer, self.target_tokenizer
        for batch in source_batches(ids, max_tokens=batch_tokens, pad_id=source.pad_id, eos_id=source.eos_id):
            on_device = batch.to(self.device)
            with torch.no_grad():
                memory = self.model.encoder(on_device.source, on_device.source_lengths)
            found = search(
                self.model.decoder,
                memory,
                options,
                bos_id=target.bos_id,
                eos_id=target.eos_id,
                forbidden=(target.pad_id, target.bos_id),
            )
            for place, hypotheses in zip(batch.indices.tolist(), found, strict=True):
                index = filled[place]
                best, *rest = [
                    self._translation(
                        encoded[index],
                        h,
                        attention=attention,
                        replace_unknown=replace_unknown,
                        align_head=align_head,
                    )
                    for h in hypotheses
                ]
                results[index] = replace(best, alternatives=tuple(rest))
        return results

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
            TypeError: `sources` or `targets` is a single text.
            ValueError: There are not as many targets as sources, or the model has no such head.
        """
        self._check_head(align_head)
        results = [Translation(target) for target in targets]
        pairs = self._given("align", sources, targets)
        for batch in pairs.batches(batch_tokens, self.target_tokenizer):
            forced = force_batch(self.model, batch.to(self.device))
            for row, hypothesis in zip(batch.indices.tolist(), forced, strict=True):
                place = pairs.places[row]
                results[place] = self._finish(
                    pairs.sources[row],
                    pairs.targets[row],
                    hypothesis,
                    text=targets[place],
                    attention=attention,
                    align_head=align_head,
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
            TypeError: `sources` or `targets` is a single text.
            ValueError: There are not as many targets as sources.
        """
        results = [TargetScore(0.0, 0) for _ in targets]
        pairs = self._given("score", sources, targets)
        for batch in pairs.batches(batch_tokens, self.target_tokenizer):
            scores = score_batch(self.model, batch.to(self.device))
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

    def _check_head(self, head: Head | None) -> None:
        if head is not None:
            check_head(head, *self.attention_shape)

    def _translation(
        self,
        source: Encoded,
        hypothesis: Hypothesis,
        *,
        attention: bool,
        replace_unknown: bool,
        align_head: Head | None,
    ) -> Translation:
        """What a search has found, as text."""
        target = self.target_tokenizer.decode_words(hypothesis.ids)
        text = self.target_tokenizer.decode(hypothesis.ids)
        found = self._finish(
            source, target, hypothesis, text=text, attention=attention, align_head=align_head
        )
        if not replace_unknown or found.weights is None:
            return found
        unknown = [
            word
            for token, word in zip(target.ids, target.word_of_piece, strict=True)
            if word is not None and token == self.target_tokenizer.unk_id
        ]
        words = copy_unknown(found.words, unknown, found.source_words, found.weights)
        return replace(found, words=words, text=join_words(words)) if unknown else found

    def _finish(
        self,
        source: Encoded,
        target: Encoded,
        hypothesis: Hypothesis,
        *,
        text: str,
        attention: bool,
        align_head: Head | None,
    ) -> Translation:
        """Words and their alignment from attention between tokens."""
        end = () if hypothesis.cut else (END,)
        weights, between_words = hypothesis.weights, None
        if weights is not None:
            weights = weights.float().cpu()
            between_words = word_weights(
                weights.mean((0, 1)) if align_head is None else weights[align_head],  # (N, M)
                [*target.word_of_piece, *(None for _ in end)],
                [*source.word_of_piece, None],
                counts=(len(target.words), len(source.words)),
            )
        return Translation(
            text=text,
            words=tuple(word.text for word in target.words),
            source_words=tuple(word.text for word in source.words),
            alignment=() if between_words is None else strongest_links(between_words),
            weights=between_words,
            score=hypothesis.score,
            normalised_score=hypothesis.normalised_score,
            attention=weights if attention else None,
            tokens=(*self.target_tokenizer.pieces(hypothesis.ids), *end),
            source_tokens=(*self.source_tokenizer.pieces(source.ids), END),
        )


def _check_texts(name: str, texts: Sequence[str]) -> None:
    """A single text is a sequence of its characters, and would be translated letter by letter."""
    if isinstance(texts, str):
        raise TypeError(f"{name} must be a list of texts, got one text; give [{texts[:40]!r}]")
