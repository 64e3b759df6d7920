"""The watcher: sees every attention operation of one thread and knows in which module it happened."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from headlights.attention import Observation
from headlights.watch._names import ModuleNames
from headlights.watch._operations import read_call
from headlights.watch._record import Record
from headlights.watch._weights import observe_attention, observe_returned, returned_parts, weights_among

_ATTENTION_CLASS = re.compile("attention|attn", re.IGNORECASE)
_DROPOUTS = (F.dropout, torch.dropout)


class _Call:
    """One module's call in progress."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.recorded = False  # something, here or further in
        self.silent: list[str] = []  # attention modules further in that gave nothing


class Recorder(TorchFunctionMode):
    """Between `__enter__` and `__exit__`, records the attention of the picked modules in the entering thread.

    Args:
        observations: What to keep of each call's weights.
        single: Whether an entry is the one result instead of a tuple of results.
        names: The model's modules.
        picked: Modules to watch, with all that they contain.
        by_name: Whether the user picked them: their returned weights are then read whatever their class is
            called.
    """

    def __init__(
        self,
        observations: tuple[Observation, ...],
        *,
        single: bool,
        names: ModuleNames,
        picked: list[nn.Module],
        by_name: bool,
    ) -> None:
        super().__init__()
        self.record = Record(names)
        self._observations = observations
        self._single = single
        self._names = names.first
        self._picked = set(picked)
        self._watched = {inner for module in picked for inner in module.modules()}
        self._may_return = {
            module
            for module in self._watched
            if (by_name and module in self._picked) or _is_attention(module)
        }
        self._calls: list[_Call] = []
        self._dropouts: list[tuple[Tensor, Tensor]] = []  # output and input, since the last attention module
        self._silent: list[str] = []
        self._entered: list[nn.Module] = []
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        # Global hooks, not one on each module: those would take the model off torch's fused fast path in
        # other threads too, and would travel with every copy made of the model.
        for handle in (
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ):
            self._cleanup.callback(handle.remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        self._cleanup.close()
        if exception[0] is None:
            self._check_all_offered()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._calls:
            with _beside_the_model():
                self._look(func, args, kwargs, result)
        return result

    def _look(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        if func in _DROPOUTS:
            if any(call.module in self._may_return for call in self._calls):
                self._dropouts.append((result, args[0] if args else kwargs["input"]))
        elif self._calls[-1].module in self._watched:
            attention = read_call(func, args, kwargs)
            if attention is not None:
                self._add(observe_attention(attention, self._observations))

    def _before(self, module: nn.Module, args: object) -> None:
        del args
        if threading.get_ident() == self._thread and module in self._names and not _in_backward():
            self._calls.append(_Call(module))
            if module in self._picked:
                self._entered.append(module)

    def _after(self, module: nn.Module, args: object, output: object) -> None:
        del args
        if threading.get_ident() != self._thread or all(call.module is not module for call in self._calls):
            return
        while self._calls[-1].module is not module:  # left without its hook, by a KeyboardInterrupt
            self._calls.pop()
        call = self._calls[-1]
        if module in self._may_return:
            if output is not None and not call.recorded:
                self._read_returned(call, output)
            self._dropouts.clear()
        self._calls.pop()
        if self._calls:
            self._calls[-1].recorded |= call.recorded
        (self._calls[-1].silent if self._calls else self._silent).extend(call.silent)

    def _read_returned(self, call: _Call, output: object) -> None:
        with _beside_the_model():
            weights = weights_among([self._before_dropout(part) for part in returned_parts(output)])
            if weights is not None:
                self._add(observe_returned(weights, self._observations))
                call.silent.clear()
            elif not call.silent and _is_attention(call.module):
                call.silent.append(self._names[call.module])

    def _before_dropout(self, part: object) -> object:
        return next((source for dropped, source in self._dropouts if dropped is part), part)

    def _add(self, results: tuple[Any, ...]) -> None:
        call = self._calls[-1]
        call.recorded = True
        self.record.add(self._names[call.module], results[0] if self._single else results)

    def _check_all_offered(self) -> None:
        silent = [name for name in dict.fromkeys(self._silent) if name not in self.record]
        if not silent and not self.record:
            silent = [self._names[module] for module in dict.fromkeys(self._entered)]
        if silent:
            modules = {name: module for module, name in self._names.items()}
            listed = ", ".join(f"{name!r} ({type(modules[name]).__name__})" for name in silent)
            raise ValueError(
                f"model: found no attention weights in {listed}: no call of anything that can be watched, as "
                "F.scaled_dot_product_attention, and no clean weights returned; pick other modules with "
                "modules=, or give a Hugging Face model attn_implementation='sdpa' or 'eager'"
            )


def _is_attention(module: nn.Module) -> bool:
    return _ATTENTION_CLASS.search(type(module).__name__) is not None


def _in_backward() -> bool:
    """Tell whether `backward` runs: what gradient checkpointing computes again is no call of the user's."""
    return torch._C._current_graph_task_id() != -1


@contextmanager
def _beside_the_model() -> Iterator[None]:
    """Compute without gradients and out of sight of enclosing watchers and other torch function modes."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        yield
