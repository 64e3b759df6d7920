"""`Translation`: a translated sentence, and how it is made of the tokens that were found."""

from dataclasses import dataclass, replace

from torch import Tensor

from headlights.translation.alignment import Head, Links, copy_unknown, strongest_links, word_weights
from headlights.translation.hypotheses import Hypothesis
from headlights.translation.tokenizer import Encoded, Tokenizer
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
        normalised_score: What ranked it: the score divided by length to the power of the length penalty, and
            the coverage penalty added. Of a sample or a given text: the score divided by the length.
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


@dataclass(frozen=True, slots=True)
class Wording:
    """How tokens and their attention become words and their alignment.

    Attributes:
        source_tokenizer: Of the source text.
        target_tokenizer: Of the target text.
        attention: Whether to keep the attention between tokens as well.
        align_head: (layer, head), from 0: whose attention alignments go by; None: the mean of all.
        replace_unknown: Whether an unknown word becomes the source word that was looked at most.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    attention: bool
    align_head: Head | None
    replace_unknown: bool

    def found(self, source: Encoded, hypothesis: Hypothesis, prefix: Encoded) -> Translation:
        """What a search has found.

        Args:
            source: The source sentence.
            hypothesis: The tokens found.
            prefix: What it had to begin with.

        Returns:
            The translation.
        """
        text, target = self.target_tokenizer.read(hypothesis.ids)
        made = self.given(source, target, hypothesis, text=text)
        unknown = [
            word
            for token, word in zip(target.ids, target.word_of_piece, strict=True)
            if word is not None and token == self.target_tokenizer.unk_id
        ]
        begun = [word.text for word in prefix.words] if unknown else []  # a token each: of kind "word"
        words = tuple(
            begun[place] if place in unknown and place < len(begun) else word
            for place, word in enumerate(made.words)
        )
        if self.replace_unknown and made.weights is not None:
            free = [place for place in unknown if place >= len(begun)]
            words = copy_unknown(words, free, made.source_words, made.weights)
        return made if words == made.words else replace(made, words=words, text=join_words(words))

    def given(self, source: Encoded, target: Encoded, hypothesis: Hypothesis, *, text: str) -> Translation:
        """What was given as a translation, or is one as it stands.

        Args:
            source: The source sentence.
            target: The target sentence.
            hypothesis: Its tokens, with scores and attention.
            text: The target sentence as text.

        Returns:
            The translation.
        """
        end = () if hypothesis.cut else (END,)
        weights, between_words = hypothesis.weights, None
        if weights is not None:
            weights = weights.float().cpu()
            between_words = word_weights(
                weights.mean((0, 1))
                if self.align_head is None
                else weights[tuple(self.align_head)],  # (N, M)
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
            attention=weights if self.attention else None,
            tokens=(*self.target_tokenizer.pieces(hypothesis.ids), *end),
            source_tokens=(*self.source_tokenizer.pieces(source.ids), END),
        )
