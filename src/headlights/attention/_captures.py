"""The tensors that reach a block's scores from outside its arguments, so that they get their gradients.

The blocked path recomputes scores in its backward pass. Autograd must then know every tensor that they depend
on: besides query and key also the score's parameters, what a callable closes over, and a mask's learned bias.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


class Outside:
    """Finds those tensors, and later lets others stand in for them.

    Args:
        module: Its parameters belong to them.
        others: May depend on further tensors than the module's parameters; a function that computes a small
            sample is then run once to see which. None: it depends on no others.
    """

    def __init__(self, module: nn.Module, others: Callable[[], object] | None) -> None:
        self._module = module
        learned = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self._names = list(learned)
        recorder = _Recorder({id(parameter) for parameter in learned.values()})
        if others is not None:
            with torch.enable_grad(), recorder:
                others()
        self._captured = list(recorder.found.values())
        self.tensors: list[Tensor] = [*learned.values(), *self._captured]

    def call(self, stand_ins: Sequence[Tensor], *arguments: Any, **options: Any) -> Any:
        """Call the module with other tensors in the place of its parameters.

        Args:
            stand_ins: One tensor for each of `tensors`; empty to use the originals.
            *arguments: Passed on.
            **options: Passed on.

        Returns:
            What the module returns.
        """
        if not stand_ins or not self._names:
            return self._module(*arguments, **options)
        parameters = dict(zip(self._names, stand_ins, strict=False))
        return torch.func.functional_call(self._module, parameters, arguments, options)

    def replaced(self, stand_ins: Sequence[Tensor]) -> AbstractContextManager[Any]:
        """While this lasts, operations see the stand-ins in the place of the captured tensors.

        Args:
            stand_ins: One tensor for each of `tensors`; empty to use the originals.

        Returns:
            A context manager.
        """
        if not stand_ins or not self._captured:
            return nullcontext()
        places = stand_ins[len(self._names) :]
        return _Replacer({id(old): new for old, new in zip(self._captured, places, strict=True)})


class _Recorder(TorchFunctionMode):
    """Notes the tensors with gradients that operations read and none of them made."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.found: dict[int, Tensor] = {}
        self._known = known
        self._made: list[object] = []  # kept alive, so that no later tensor gets the same id

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def note(tensor: Tensor) -> Tensor:
            if tensor.requires_grad and id(tensor) not in self._known:
                self.found[id(tensor)] = tensor
            return tensor

        def made(tensor: Tensor) -> Tensor:
            if id(tensor) not in self.found:
                self._known.add(id(tensor))
                self._made.append(tensor)
            return tensor

        _map_tensors(note, [args, kwargs])
        return _map_tensors(made, func(*args, **(kwargs or {})))


class _Replacer(TorchFunctionMode):
    def __init__(self, new: dict[int, Tensor]) -> None:
        super().__init__()
        self._new = new

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def swap(tensor: Tensor) -> Tensor:
            return self._new.get(id(tensor), tensor)

        return func(*_map_tensors(swap, args), **_map_tensors(swap, kwargs or {}))


def _map_tensors(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    if isinstance(value, Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_map_tensors(change, item) for item in value)
    if type(value) is dict:
        return {key: _map_tensors(change, item) for key, item in value.items()}
    return value
