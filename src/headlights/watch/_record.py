"""What a watcher hands to its user."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor

from headlights.watch._names import ModuleNames, nearest


class Record(Mapping[str, list[Any]]):
    """What was observed: for each module that attended, by name, a list with one entry a call.

    An entry is the observation's result, or a tuple of results if a tuple of observations was asked for. A
    module that is reachable under several names is listed under the first and found under each.
    """

    def __init__(self, names: ModuleNames) -> None:
        self._canonical = names.canonical
        self._entries: dict[str, list[Any]] = {}
        self._calls: list[tuple[str, Any]] = []  # the same entries, in the order in which they came

    def __getitem__(self, name: str) -> list[Any]:
        canonical = self._canonical.get(name, name)
        if canonical not in self._entries:
            reason = (
                f"nearest: {nearest(name, self._entries)}"
                if self._entries
                else "no module was called as model(...) or submodule(...), in this thread, inside the block"
            )
            raise KeyError(f"no attention was recorded under {name!r}; {reason}")
        return self._entries[canonical]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        calls = ", ".join(f"{name!r}: {len(entries)}" for name, entries in self._entries.items())
        return f"Record(calls: {{{calls}}})"

    def stack(self, modules: str | Iterable[str] | None = None, *, example: int | None = 0) -> Any:
        """Stack the entries of all layers for one example of the batch, as `headlights.view` takes them.

        Layers come in the order in which they were called, also where one module serves as several. Of
        `TopWeights(k)` this gives `Top(values, indices)`, each (L, H, N, k); of `Weights()` a tensor
        (L, H, N, M); other observations, and tuples of them, likewise with L in front.

        Args:
            modules: Names or globs of the recorded modules to take, such as "decoder.*.encoder_attn".
                Default: all.
            example: Which example of the batch, from 0; None: entries have no batch, or keep it as
                dimension 1.

        Returns:
            What an entry is, each tensor with L layers as the first dimension in place of the batch.

        Raises:
            ValueError: Nothing was recorded under `modules`, there is no such example, or the entries differ
                in shape, as those of an encoder and its decoder do.

        Example:
            >>> import torch
            >>> from headlights import observations, observe
            >>> layers = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
            >>> model = torch.nn.TransformerEncoder(layers, num_layers=3)
            >>> with observe(model, observations.TopWeights(4)) as record:
            ...     output = model(torch.zeros(1, 5, 8))
            >>> record.stack().values.shape
            torch.Size([3, 2, 5, 4])
        """
        patterns = ["*"] if modules is None else [modules] if isinstance(modules, str) else list(modules)
        names = {self._canonical.get(pattern, pattern) for pattern in patterns}
        names |= {name for name in self if any(fnmatchcase(name, pattern) for pattern in patterns)}
        calls = [(name, entry) for name, entry in self._calls if name in names]
        if not calls:
            known = ", ".join(map(repr, patterns))
            raise ValueError(f"modules: nothing was recorded under {known}; {self!r}")
        return _stack([name for name, _ in calls], [entry for _, entry in calls], example)

    def add(self, name: str, entry: Any) -> None:
        """Append an entry; for the watcher only.

        Args:
            name: First name of the module.
            entry: What was observed.
        """
        self._entries.setdefault(name, []).append(entry)
        self._calls.append((name, entry))


def _stack(names: list[str], entries: list[Any], example: int | None) -> Any:
    first = entries[0]
    if not isinstance(first, Tensor):
        parts = [_stack(names, list(part), example) for part in zip(*entries, strict=True)]
        return getattr(first, "_make", tuple)(parts)
    for name, entry in zip(names, entries, strict=True):
        if entry.shape != first.shape:
            raise ValueError(
                f"modules: {names[0]!r} and {name!r} gave entries of shapes {tuple(first.shape)} and "
                f"{tuple(entry.shape)}, which do not stack; pick modules or calls of one shape"
            )
    if example is None:
        return torch.stack(entries)
    if not 0 <= example < first.shape[0]:
        raise ValueError(
            f"example: expected 0 to {first.shape[0] - 1} for entries of shape "
            f"{tuple(first.shape)}, got {example}"
        )
    return torch.stack([entry[example] for entry in entries])
