"""Figures as tables on standard output."""

from collections.abc import Sequence

from headlights.translation.evaluation import Evaluation, Scores


def print_evaluation(evaluation: Evaluation) -> None:
    """BLEU, chrF and alignment error rate, whole and by length, and how they were computed.

    Args:
        evaluation: What `evaluate` returned.
    """
    rows = [("words", "sentences", "BLEU", "chrF", "alignment errors"), _row("all", evaluation.whole)]
    rows += [_row(span(part), part) for part in evaluation.buckets]
    print_table(rows)
    print(f"BLEU  {evaluation.bleu_signature}")
    print(f"chrF  {evaluation.chrf_signature}")


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Rows in columns: the first at the left, numbers at the right.

    Args:
        rows: The first is the head; all are of one length.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print("  ".join(cells))


def span(scores: Scores) -> str:
    """The lengths of a bucket as text, in words; no sentence has none."""
    return f"{max(1, scores.shortest)}–{scores.longest}"


def percent(rate: float | None) -> str:
    """A rate in 0..1 as text."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _row(name: str, scores: Scores) -> tuple[str, ...]:
    return (
        name,
        str(scores.sentences),
        f"{scores.bleu:.2f}",
        f"{scores.chrf:.2f}",
        percent(scores.alignment_error_rate),
    )
