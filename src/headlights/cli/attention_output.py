"""Where `translate` writes the attention of its translations: a map a line, or the map of a single line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headlights.cli.common import CHUNK, UsageError, check_output, text_output
from headlights.cli.sources import FORMATS, LINES, word_map

if TYPE_CHECKING:
    from headlights.translation.translations import Translation
    from headlights.translation.translator import Translator
    from headlights.view import AttentionMap

BETWEEN = ("words", "tokens")
"""What a map is between: words, with the alignment, or tokens, in all layers and heads."""

Keep = Callable[[Sequence[str], "Sequence[Translation]"], None]
"""Told sentences and their translations, in order, as they are made."""

_OPTION = "--output-attention"

CHUNK_WITH_TOKENS = 200  # in the place of `CHUNK`, where all layers and heads of each line are kept


class AttentionOutput(NamedTuple):
    """The file that attention goes to, if any.

    Attributes:
        path: Where to; None: nowhere.
        between: One of `BETWEEN`; None: not said, which is the first.
    """

    path: Path | None
    between: str | None

    @property
    def needs_words(self) -> bool:
        """Whether attention between words is written."""
        return self.path is not None and self.between != "tokens"

    @property
    def needs_tokens(self) -> bool:
        """Whether attention between tokens is written, and so must be kept."""
        return self.between == "tokens"

    @property
    def lines_at_once(self) -> int:
        """How many lines to translate together: few, where much is kept of each."""
        return CHUNK_WITH_TOKENS if self.needs_tokens else CHUNK

    def check(self, text: Path | None, *inputs: Path | None) -> None:
        """Refuse what cannot be written, before the work for it is done.

        Args:
            text: Where the translations go; None: standard output.
            *inputs: What the command reads.

        Raises:
            UsageError: The name says no format, options do not go together, or the file cannot be written.
        """
        path, between = self
        if between is not None and path is None:
            raise UsageError(f"--attention-between {between}: needs {_OPTION} beside it")
        if between is not None and between not in BETWEEN:
            raise UsageError(f"--attention-between {between}: expected {' or '.join(BETWEEN)}")
        if path is None:
            return
        if not path.name.endswith((*LINES, *FORMATS)):
            raise UsageError(
                f"{_OPTION} {path}: expected a name that ends in {', '.join(LINES)}, or for one line of text "
                f"in {', '.join(FORMATS)}"
            )
        check_output(path, _OPTION, *inputs)
        if text is not None and text.resolve() == path.resolve():
            raise UsageError(f"{_OPTION} {path}: --output writes this file too; give each its own name")

    def check_model(self, translator: "Translator") -> None:
        """Refuse a model that has no attention to write.

        Args:
            translator: Of the model.

        Raises:
            UsageError: It has none.
        """
        if self.path is not None and not any(translator.attention_shape):
            raise UsageError(f"{_OPTION}: the model was trained without attention: it has none to write")

    def fitting(self, chunks: Iterator[list[str]]) -> Iterator[list[str]]:
        """Lines to translate whose attention the file can hold.

        Args:
            chunks: The lines as they come.

        Returns:
            The same lines; for a file of one map, all of them are waited for.

        Raises:
            UsageError: The file is for one map, and there is another number of lines.
        """
        if self.path is None or self.path.name.endswith(LINES):
            return chunks
        lines = list(islice(chain.from_iterable(chunks), 2))
        if len(lines) != 1:
            came = "more" if lines else "none"
            raise UsageError(
                f"{_OPTION} {self.path}: holds the attention of one line, and the text has {came}; for any "
                f"number choose a name that ends in {LINES[0]}"
            )
        return iter([lines])

    @contextmanager
    def opened(self) -> Iterator[Keep]:
        """Write attention as translations are made; at the end the file is there, whole, or as it was.

        Yields:
            What to tell sentences and their translations.

        Raises:
            UsageError: The file cannot be written, or its format cannot hold a word.
        """
        from headlights.view import attention_line

        if self.path is None:
            yield lambda *_: None
        elif self.path.name.endswith(LINES):
            with text_output(self.path) as file:

                def write(lines: Sequence[str], found: "Sequence[Translation]") -> None:
                    file.writelines(f"{line}\n" for line in map(attention_line, self._maps(lines, found)))
                    file.flush()

                yield write
        else:
            kept: list[AttentionMap] = []
            yield lambda lines, found: kept.extend(self._maps(lines, found))
            save_map(self.path, kept[0], _OPTION)

    def _maps(self, lines: Sequence[str], found: "Sequence[Translation]") -> Iterator["AttentionMap"]:
        """A map for each line; that of a blank one has no words, and keeps its place."""
        import numpy as np

        from headlights.view import AttentionMap

        for line, each in zip(lines, found, strict=True):
            if each.weights is None:
                yield AttentionMap((), (), weights=np.zeros((0, 0)))
            elif self.needs_tokens:
                title = f"{line} → {each.text}"
                yield AttentionMap(each.source_tokens, each.tokens, weights=each.attention, title=title)
            else:
                yield word_map(each, line)


def save_map(path: Path, attention: "AttentionMap", option: str) -> None:
    """Write one map, in the format that the name says.

    Args:
        path: The file.
        attention: What to write.
        option: What the user calls it.

    Raises:
        UsageError: The file cannot be written, or its format cannot hold a word.
    """
    from headlights import view

    try:
        view.save_attention(path, attention)
    except OSError as error:  # names a file beside it, or none
        raise UsageError(f"{option} {path}: cannot be written: {error.strerror}") from None
    except ValueError as error:  # a word that the format cannot hold
        raise UsageError(f"{option} {path}: {error}") from None
