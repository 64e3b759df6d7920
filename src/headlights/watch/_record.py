"""What a watcher hands to its user."""

from collections.abc import Iterator, Mapping
from typing import Any

from headlights.watch._names import ModuleNames, nearest


class Record(Mapping[str, list[Any]]):
    """What was observed: for each module that attended, by name, a list with one entry a call.

    An entry is the observation's result, or a tuple of results if a tuple of observations was asked for. A
    module that is reachable under several names is listed under the first and found under each.
    """

    def __init__(self, names: ModuleNames) -> None:
        self._canonical = names.canonical
        self._entries: dict[str, list[Any]] = {}

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

    def add(self, name: str, entry: Any) -> None:
        """Append an entry; for the watcher only.

        Args:
            name: First name of the module.
            entry: What was observed.
        """
        self._entries.setdefault(name, []).append(entry)
