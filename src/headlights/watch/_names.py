"""The names of a model's modules, and how users pick some of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn

Pick = str | Iterable[str] | Callable[[str, nn.Module], bool]


@dataclass(frozen=True)
class ModuleNames:
    """Who is who in a model.

    Attributes:
        first: Each module's name, the first one if it is reachable under several.
        canonical: Every name that leads to a module, with that module's first name.
    """

    first: dict[nn.Module, str]
    canonical: dict[str, str]


def module_names(model: nn.Module) -> ModuleNames:
    """List the modules of a model as `named_modules` names them; the model itself is "".

    Args:
        model: The model.

    Returns:
        Its names.
    """
    first: dict[nn.Module, str] = {}
    canonical = {}
    for name, module in model.named_modules(remove_duplicate=False):
        canonical[name] = first.setdefault(module, name)
    return ModuleNames(first, canonical)


def pick_modules(names: ModuleNames, pick: Pick | None) -> list[nn.Module]:
    """Find the modules that a user picked.

    Args:
        names: The model's names.
        pick: A name, a glob, several of either, or a predicate of name and module; None picks the model.

    Returns:
        The modules that match themselves, without what they contain, in the model's order.

    Raises:
        TypeError: `pick` is of the wrong kind.
        ValueError: Some name or glob, or the predicate, matches no module.
    """
    by_name = {name: module for module, name in names.first.items()}
    if pick is None:
        return [by_name[""]]
    if callable(pick):
        found = {name for module, name in names.first.items() if pick(name, module)}
        if not found:
            raise ValueError(f"modules: the predicate is True for none of the model's {len(by_name)} modules")
    else:
        patterns = [pick] if isinstance(pick, str) else _patterns(pick)
        found = {names.canonical[name] for pattern in patterns for name in _matches(pattern, names)}
    return [module for module, name in names.first.items() if name in found]


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known names are nearest to a wrong one.

    Args:
        name: What the user wrote.
        known: The names that exist.

    Returns:
        Up to three of them, quoted, the nearest first; "none" if there are none.
    """
    close = get_close_matches(name, list(known), n=3, cutoff=0.0)
    return ", ".join(repr(candidate) for candidate in close) or "none"


def _patterns(pick: Iterable[str]) -> list[str]:
    patterns = list(pick) if isinstance(pick, Iterable) else [pick]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"modules: expected names, globs or a predicate (name, module) -> bool, got {pattern!r}"
            )
    return patterns


def _matches(pattern: str, names: ModuleNames) -> list[str]:
    if pattern in names.canonical:
        return [pattern]
    found = [name for name in names.canonical if fnmatchcase(name, pattern)]
    if not found:
        raise ValueError(
            f"modules: {pattern!r} matches no module of the model; nearest names: "
            f"{nearest(pattern, names.canonical)}"
        )
    return found
