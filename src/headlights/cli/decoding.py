"""How `headlights translate` decodes: its options, how they go together, and several translations a line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headlights.cli.common import UsageError, check_text, option_of

if TYPE_CHECKING:
    from headlights.translation.sampling import SamplingOptions
    from headlights.translation.search import SearchOptions
    from headlights.translation.translations import Translation

# Nothing given is None, so that an option that does not go with the others is refused and never ignored.
Beam = Annotated[
    int | None, typer.Option(min=1, help="Hypotheses kept per sentence; 1 is greedy. Default: 5.")
]
LengthPenalty = Annotated[
    float | None, typer.Option(min=0.0, help="Power of the length that divides scores. Default: 1.")
]
CoveragePenalty = Annotated[
    float | None,
    typer.Option(min=0.0, help="Weight of the penalty on source tokens not looked at. Default: 0."),
]
Patience = Annotated[
    float | None,
    typer.Option(
        help="End a line when beam times that many hypotheses have; 1 is faster. Default: when none can win."
    ),
]
Sample = Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")]
Temperature = Annotated[
    float | None,
    typer.Option(help="With --sample: below 1 favours probable tokens, above 1 the others. Default: 1."),
]
TopK = Annotated[
    int | None,
    typer.Option(min=0, help="With --sample: draw among so many most probable tokens. Default: 0, all."),
]
TopP = Annotated[
    float | None,
    typer.Option(
        help="With --sample: draw among the fewest tokens of this probability together. Default: 1, all."
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="With --sample: of the draws. Default: 0.")]
NBest = Annotated[
    int | None,
    typer.Option(min=1, help="Write so many translations a line: number ||| text ||| logprob= s ||| score."),
]
Prefix = Annotated[str | None, typer.Option(help="What every translation begins with, in whole words.")]
PrefixFile = Annotated[
    Path | None, typer.Option(help="What each translation begins with: a line for each line, or a blank one.")
]
MaxRatio = Annotated[
    float | None, typer.Option(min=0.0, help="Most target tokens per source token. Default: 1.5.")
]
MaxExtra = Annotated[int | None, typer.Option(min=1, help="Tokens allowed beyond --max-ratio. Default: 10.")]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="MODEL", help="Another model that translates together with the first; may be given again."
    ),
]


def decoding_options(
    *, sampled: bool, search: Mapping[str, Any], sampling: Mapping[str, Any], both: Mapping[str, Any]
) -> "SearchOptions | SamplingOptions":
    """The options for one of the two ways to translate.

    Args:
        sampled: Whether to draw at random.
        search: What only search understands, by name; None where the user gave nothing.
        sampling: What only sampling understands.
        both: What both do.

    Returns:
        Those of the way chosen.

    Raises:
        UsageError: An option of the other way was given, or a value is out of its range.
    """
    from headlights.translation.sampling import SamplingOptions, with_given
    from headlights.translation.search import SearchOptions

    wrong = [
        option_of(name) for name, value in (search if sampled else sampling).items() if value is not None
    ]
    if wrong and sampled:
        raise UsageError(f"--sample draws and does not search: leave out {' and '.join(wrong)}")
    if wrong:
        raise UsageError(f"{' and '.join(wrong)}: only for translations drawn at random; give --sample too")
    options = SamplingOptions() if sampled else SearchOptions()
    try:
        return with_given(options, {**(sampling if sampled else search), **both})
    except ValueError as error:  # begins with the name of the value
        name, _, rest = str(error).partition(" ")
        raise UsageError(f"{option_of(name)} {rest}") from None


def at_line(number: int, options: "SearchOptions | SamplingOptions") -> "SearchOptions | SamplingOptions":
    """The options for a chunk of a text: draws depend on the line, not on the chunk.

    Args:
        number: Of the chunk's first line, from 0.
        options: Of the whole text.

    Returns:
        Those of the chunk.
    """
    from headlights.translation.sampling import SamplingOptions

    return replace(options, first_line=number) if isinstance(options, SamplingOptions) else options


class PrefixLines:
    """The prefixes of lines that arrive in chunks: one for all, or those of a file, line by line.

    Args:
        text: A prefix for all lines.
        path: A file of prefixes.

    Raises:
        UsageError: Both are given, or the text is not UTF-8.
    """

    def __init__(self, text: str | None, path: Path | None) -> None:
        from headlights.translation.corpus import read_lines

        if text is not None and path is not None:
            raise UsageError("give either --prefix or --prefix-file, not both")
        if text is not None:
            check_text(text, "--prefix")
        self._path, self._taken = path, 0
        self._lines: Iterator[str] = repeat(text or "") if path is None else read_lines(path)

    def take(self, count: int) -> list[str]:
        """The prefixes of the next lines.

        Args:
            count: How many lines.

        Returns:
            One for each, blank for none.

        Raises:
            UsageError: The file has too few lines.
        """
        found = list(islice(self._lines, count))
        self._taken += len(found)
        if len(found) < count:
            raise UsageError(
                f"--prefix-file {self._path}: ends after line {self._taken}, the text goes on; write a line "
                "for each line of text, blank where there is no prefix"
            )
        return found

    def finish(self) -> None:
        """Say so if the file has more lines than the text.

        Raises:
            UsageError: It has.
        """
        if self._path is not None and next(self._lines, None) is not None:
            raise UsageError(
                f"--prefix-file {self._path}: goes on after line {self._taken}, where the text ends; write "
                "one line for each line of text"
            )


def n_best_lines(number: int, best: "Translation", *, alignment: bool) -> Iterator[str]:
    """All translations of a line in the n-best format of Moses.

    Args:
        number: Number of the line, from 0.
        best: Its first translation, with the others as `alternatives`; empty for a blank line.
        alignment: Whether to add the word alignment.

    Yields:
        For each "number ||| text ||| logprob= score ||| normalised score", and perhaps " ||| 0-0 1-2".
    """
    from headlights.translation.alignment import pharaoh

    for each in (best, *best.alternatives):
        text = one_line(each.text).replace("|||", "| | |")
        line = f"{number} ||| {text} ||| logprob= {each.score:.6f} ||| {each.normalised_score:.6f}"
        yield f"{line} ||| {pharaoh(each.alignment)}" if alignment else line


def one_line(text: str) -> str:
    """A text without ends of lines: a model may invent any character, but those are ours.

    Args:
        text: What a model wrote.

    Returns:
        The text, spaces in their place.
    """
    return text.replace("\n", " ").replace("\r", " ")
