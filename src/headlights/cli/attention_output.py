"""Where `translate` writes the attention of its translations: a map a line, or the map of a single line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from headlights.cli.common import UsageError, check_output, text_output
from headlights.cli.sources import FORMATS, LINES, word_map

if TYPE_CHECKING:
    from headlights.translation.translator import Translation
    from headlights.view import AttentionMap

BETWEEN = ("words", "tokens")
"""What a map is between: words, with the alignment, or tokens, in all layers and heads."""

Keep = Callable[[Sequence[str], "Sequence[Translation]"], None]
"""Told sentences and their translations, in order, as they are made."""

_OPTION = "--output-attention"


def check_attention_output(path: Path | None, between: str | None, text: Path | None) -> None:
    """Refuse what cannot be written, before the work for it is done.

    Args:
        path: Where attention is to go; None: nowhere.
        between: One of `BETWEEN`; None: not said.
        text: Where the translations go; None: standard output.

    Raises:
        UsageError: The name says no format, options do not go together, or the file cannot be written.
    """
    if between is not None and path is None:
        raise UsageError(f"--attention-between {between}: needs {_OPTION} beside it")
    if between is not None and between not in BETWEEN:
        raise UsageError(f"--attention-between {between}: expected {' or '.join(BETWEEN)}")
    if path is None:
        return
    if not path.name.endswith((*LINES, *FORMATS)):
        raise UsageError(
            f"{_OPTION} {path}: expected a name that ends in {', '.join(LINES)}, or for one line of text in "
            f"{', '.join(FORMATS)}"
        )
    check_output(path, _OPTION)
    if text is not None and text.resolve() == path.resolve():
        raise UsageError(f"{_OPTION} {path}: --output writes this file too; give each its own name")


def lines_at_once(path: Path | None, between: str | None) -> int:
    """How many lines to translate together, so that what is kept of them stays small."""
    return 200 if path is not None and between == "tokens" else 2000


def fitting(chunks: Iterator[list[str]], path: Path | None) -> Iterator[list[str]]:
    """Lines to translate whose attention the file can hold.

    Args:
        chunks: The lines as they come.
        path: Where attention is to go; None: nowhere.

    Returns:
        The same lines; for a file of one map, all of them are waited for.

    Raises:
        UsageError: The file is for one map, and there is another number of lines.
    """
    if path is None or path.name.endswith(LINES):
        return chunks
    lines = list(islice(chain.from_iterable(chunks), 2))
    if len(lines) != 1:
        several = "more" if lines else "none"
        raise UsageError(
            f"{_OPTION} {path}: holds the attention of one line, and the text has {several}; for any number "
            f"choose a name that ends in {LINES[0]}"
        )
    return iter([lines])


@contextmanager
def attention_output(path: Path | None, between: str | None) -> Iterator[Keep]:
    """Write attention as translations are made; at the end the file is there, whole, or as it was before.

    Args:
        path: The file; None: nothing is written.
        between: One of `BETWEEN`; None: the first.

    Yields:
        What to tell each sentence and its translation.

    Raises:
        UsageError: The file cannot be written, or its format cannot hold a word.
    """
    make = _token_map if between == "tokens" else word_map
    if path is None:
        yield lambda *_: None
    elif path.name.endswith(LINES):
        from headlights.view import attention_line

        with text_output(path) as file:

            def write(lines: Sequence[str], found: "Sequence[Translation]") -> None:
                for line, each in zip(lines, found, strict=True):
                    file.write(f"{attention_line(_filled(make, each, line))}\n")
                file.flush()

            yield write
    else:
        maps: list[AttentionMap] = []
        yield lambda lines, found: maps.extend(
            _filled(make, each, line) for line, each in zip(lines, found, strict=True)
        )
        save_map(path, maps[0], _OPTION)


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


def _filled(
    make: "Callable[[Translation, str], AttentionMap]", found: "Translation", line: str
) -> "AttentionMap":
    """The map of a translation; of a blank line one without words, which keeps its place."""
    import numpy as np

    from headlights import view

    return view.AttentionMap((), (), weights=np.zeros((0, 0))) if found.weights is None else make(found, line)


def _token_map(found: "Translation", line: str) -> "AttentionMap":
    from headlights import view

    title = f"{line} → {found.text}"
    return view.AttentionMap(found.source_tokens, found.tokens, weights=found.attention, title=title)
