"""The way back from the end of a translation to its start: what was written, and where the model looked."""

import torch
from torch import Tensor


class Trace:
    """What a search or a draw has done, kept as rows that point to rows of the step before.

    At step t, `weights[t]` belongs to the rows that were read; `tokens[t]` and `parents[t]` describe the rows
    made, which are those read at step t + 1.
    """

    def __init__(self) -> None:
        self._tokens: list[Tensor] = []
        self._parents: list[Tensor] = []
        self._weights: list[Tensor | None] = []

    def look(self, weights: Tensor | None) -> None:
        """Note where the rows of this step looked.

        Args:
            weights: Shape (rows, L, H, M); None where they are not kept.
        """
        self._weights.append(weights)

    def go_on(self, parents: Tensor, tokens: Tensor) -> None:
        """Note the rows of the next step.

        Args:
            parents: The row of this step that each continues, int64, shape (rows,).
            tokens: The token that it adds, int64, shape (rows,).
        """
        self._parents.append(parents)
        self._tokens.append(tokens)

    def settle(self) -> None:
        """Fetch what `follow` walks through to the CPU, once for all walks."""
        self._tokens = [tokens.cpu() for tokens in self._tokens]
        self._parents = [parents.cpu() for parents in self._parents]

    def follow(
        self, step: int, row: int, last: tuple[int, ...], length: int
    ) -> tuple[tuple[int, ...], Tensor | None]:
        """Walk back from a translation's end.

        Args:
            step: The last step that it took part in.
            row: Its row there.
            last: Its last token; none if that was the end mark.
            length: Real tokens of its source.

        Returns:
            ids: Its tokens, without the end mark.
            weights: Shape (L, H, T, length), a step more than tokens where the end mark was written; None if
                none were kept.
        """
        ids, rows = list(last), [row]
        for before in range(step - 1, -1, -1):
            ids.append(int(self._tokens[before][row]))
            row = int(self._parents[before][row])
            rows.append(row)
        steps = zip(self._weights, reversed(rows), strict=False)  # other sentences may have gone on
        seen = [weights[row, ..., :length] for weights, row in steps if weights is not None]
        return tuple(reversed(ids)), torch.stack(seen, 2) if seen else None
