"""`Translator`: text in, translations with their alignment out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from headlights.translation.alignment import Links, copy_unknown, strongest_links, word_weights
from headlights.translation.batches import Batch, SourceBatch, TokenBatches, source_batches
from headlights.translation.corpus import is_blank
from headlights.translation.ensemble import Ensemble, check_alike
from headlights.translation.folders import ModelFolder
from headlights.translation.prefixes import encode_prefixes
from headlights.translation.sampling import SamplingOptions, sample, with_given
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
            word's, layers and heads; shape (target words, source words); None without attention.
        score: Summed natural log-probability, end mark included (but where the limit cut the sentence).
        normalised_score: What ranked it: the score divided by length to the power of the length penalty. Of a
            sample or a given text: the score divided by the length.
        attention: Shape (L, H, N, M) over `tokens` and `source_tokens`; None unless asked for.
        tokens: Target tokens as text, the end mark last unless the length limit cut the sentence.
        source_tokens: Source tokens as text, the end mark last.
        alternatives: Further translations, if more than one was asked for: best first, samples as they were
            drawn.
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
    """A trained model, or several that decode together, ready to translate.

    An ensemble gives each token the mean of its models' probabilities. Its attention is the mean over each
    model's layers and heads, and then over the models that have attention, so that it has one layer and head.

    Args:
        folder: Model and tokenizers.
        *others: Further models with the same tokenizers.
        device: Where to compute; default: where a GPU is present, there, else the CPU.

    Attributes:
        device: Where it computes.
        model: The model; of several, the first.
        source_tokenizer: For source text.
        target_tokenizer: For target text.
        training: How the (first) model was trained.

    Raises:
        InputError: The models have not the same tokenizers.
    """

    def __init__(
        self, folder: ModelFolder, *others: ModelFolder, device: str | torch.device | None = None
    ) -> None:
        check_alike([folder, *others], [f"model {n}" for n in range(1, len(others) + 2)])
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        models = [each.model.to(self.device).eval() for each in (folder, *others)]
        self.model = models[0]
        self._used = Ensemble(models) if others else self.model
        self.source_tokenizer, self.target_tokenizer = folder.source_tokenizer, folder.target_tokenizer
        self.training = folder.training

    @classmethod
    def load(
        cls, folder: str | Path | Sequence[str | Path], *, device: str | torch.device | None = None
    ) -> "Translator":
        """Load a model folder, or the best model of a run folder; or several, which then decode together.

        Args:
            folder: A folder made by training; or a list of such folders, whose models have the same
                tokenizers.
            device: Where to compute; default: where a GPU is present, there, else the CPU.

        Returns:
            The translator.

        Raises:
            FolderError: The folder is missing, incomplete or broken; the message says what to do.
            InputError: The models have not the same tokenizers.
            ValueError: The list is empty.
        """
        paths = [folder] if isinstance(folder, str | Path) else list(folder)
        if not paths:
            raise ValueError("folder must be a folder or a list of one or more, got an empty list")
        folders = [ModelFolder.load(Path(path)) for path in paths]
        check_alike(folders, [str(path) for path in paths])
        return cls(*folders, device=device)

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
        prefixes: Sequence[str] | None = None,
        replace_unknown: bool = False,
        attention: bool = False,
        batch_tokens: int = 4096,
    ) -> list[Translation]:
        """Translate lines of text.

        Args:
            lines: One sentence each; a blank one stays empty and never meets the model.
            options: How to translate: `SearchOptions` for greedy or beam search, `SamplingOptions` to draw at
                random. Default: beam search with a beam of 5. The arguments that follow take the place of
                single values of it.
            beam: Hypotheses kept per sentence; 1 is greedy search.
            length_penalty: Power of the length that divides a score.
            coverage_penalty: Weight of the penalty on source tokens that were not looked at, as in
                `SearchOptions`; needs attention.
            max_ratio: Longest translation, in target tokens per source token.
            max_extra: Tokens allowed beyond that.
            n_best: Translations per line; those after the first are its `alternatives`.
            prefixes: What each translation begins with, one text per line, blank for none. A text is taken as
                whole words, and white space around it does not count; the model goes on behind it, with a new
                word or with more of the last. The score counts it. Lower-cased if the model's text is; words
                that the model does not know stay as they are.
            replace_unknown: Write the source word that was looked at most in the place of an unknown word;
                only vocabularies of kind "word" have any, and `tokens` still says where.
            attention: Keep the attention between tokens as well.
            batch_tokens: Source tokens translated at once, padding and beam not counted.

        Returns:
            One translation per line, in order.

        Raises:
            TypeError: `lines` or `prefixes` is a single text.
            ValueError: A value is out of range or does not go with `options`, the model has no attention for
                it, or there are not as many prefixes as lines.
        """
        given = {
            "beam": beam,
            "length_penalty": length_penalty,
            "coverage_penalty": coverage_penalty,
            "max_ratio": max_ratio,
            "max_extra": max_extra,
            "n_best": n_best,
            "need_weights": True,
        }
        chosen = with_given(options, given)
        _check_texts("lines", lines)
        if prefixes is not None:
            _check_texts("prefixes", prefixes)
        begun = encode_prefixes(prefixes, len(lines), self.target_tokenizer)
        results = [Translation("") for _ in lines]
        encoded = self.source_tokenizer.encode_batch(lines)
        filled = [index for index, line in enumerate(lines) if not is_blank(line)]
        ids = [encoded[index].ids for index in filled]
        source = self.source_tokenizer
        for batch in source_batches(ids, max_tokens=batch_tokens, pad_id=source.pad_id, eos_id=source.eos_id):
            places = [filled[place] for place in batch.indices.tolist()]
            found = self._found(batch, chosen, places, [begun[index].ids for index in places])
            for index, hypotheses in zip(places, found, strict=True):
                best, *rest = [
                    self._translation(
                        encoded[index],
                        h,
                        prefix=begun[index],
                        attention=attention,
                        replace_unknown=replace_unknown,
                    )
                    for h in hypotheses
                ]
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
        batch_tokens: int = 4096,
    ) -> list[Translation]:
        """Force given translations and see where the model looks while writing them.

        Args:
            sources: Source sentences.
            targets: A translation of each.
            attention: Keep the attention between tokens as well.
            batch_tokens: Tokens computed at once, padding counted.

        Returns:
            The given translations with scores and alignment, in order; empty where either side is blank.

        Raises:
            TypeError: `sources` or `targets` is a single text.
            ValueError: There are not as many targets as sources.
        """
        _check_texts("sources", sources)
        _check_texts("targets", targets)
        if len(sources) != len(targets):
            raise ValueError(
                f"align needs one target per source, got {len(sources)} sources, {len(targets)} targets"
            )
        results = [Translation(target) for target in targets]
        filled = [
            i for i, pair in enumerate(zip(sources, targets, strict=True)) if not any(map(is_blank, pair))
        ]
        if not filled:
            return results
        source = self.source_tokenizer.encode_batch([sources[i] for i in filled])
        target = self.target_tokenizer.encode_batch([targets[i] for i in filled])
        batches = TokenBatches(
            [sentence.ids for sentence in source],
            [sentence.ids for sentence in target],
            max_tokens=batch_tokens,
            pad_id=self.target_tokenizer.pad_id,
            bos_id=self.target_tokenizer.bos_id,
            eos_id=self.target_tokenizer.eos_id,
        )
        for batch in batches.ordered():
            for place, hypothesis in zip(batch.indices.tolist(), self._forced(batch), strict=True):
                text = targets[filled[place]]
                results[filled[place]] = self._finish(
                    source[place], target[place], hypothesis, text=text, attention=attention
                )
        return results

    @torch.no_grad()
    def _forced(self, batch: Batch) -> list[Hypothesis]:
        """The given targets as if a search had found them."""
        batch = batch.to(self.device)
        decoded = self._used(batch, need_weights=True)
        log_probabilities = self._used.decoder.project(decoded.states).float().log_softmax(-1)
        chosen = log_probabilities.gather(-1, batch.target_out.unsqueeze(-1)).squeeze(-1)  # (B, T)
        found = []
        sizes = zip(batch.source_lengths.tolist(), batch.target_lengths.tolist(), strict=True)
        for row, (source_length, length) in enumerate(sizes):
            score = float(chosen[row, :length].sum())
            weights = None
            if decoded.weights is not None:
                weights = decoded.weights[row, :length, :, :, :source_length]  # (T, L, H, M)
                weights = weights.permute(1, 2, 0, 3)  # (L, H, T, M)
            ids = tuple(batch.target_out[row, : length - 1].tolist())
            found.append(Hypothesis(ids, score, score / length, weights))
        return found

    def _translation(
        self,
        source: Encoded,
        hypothesis: Hypothesis,
        *,
        prefix: Encoded,
        attention: bool,
        replace_unknown: bool,
    ) -> Translation:
        """What a search has found, as text."""
        target = self.target_tokenizer.decode_words(hypothesis.ids)
        text = self.target_tokenizer.decode(hypothesis.ids)
        found = self._finish(source, target, hypothesis, text=text, attention=attention)
        unknown = [
            word
            for token, word in zip(target.ids, target.word_of_piece, strict=True)
            if word is not None and token == self.target_tokenizer.unk_id
        ]
        given = [word.text for word in prefix.words] if unknown else []  # a token each: of kind "word"
        words = tuple(
            given[place] if place in unknown and place < len(given) else word
            for place, word in enumerate(found.words)
        )
        if replace_unknown and found.weights is not None:
            free = [place for place in unknown if place >= len(given)]
            words = copy_unknown(words, free, found.source_words, found.weights)
        return found if words == found.words else replace(found, words=words, text=join_words(words))

    def _finish(
        self, source: Encoded, target: Encoded, hypothesis: Hypothesis, *, text: str, attention: bool
    ) -> Translation:
        """Words and their alignment from attention between tokens."""
        end = () if hypothesis.cut else (END,)
        weights, between_words = hypothesis.weights, None
        if weights is not None:
            weights = weights.float().cpu()
            mean = weights.mean((0, 1))  # (N, M)
            between_words = word_weights(
                mean,
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
