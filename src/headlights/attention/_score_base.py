"""What a score is: a `Score` prepares keys and scores queries against the `PreparedKey`."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad


@dataclass(frozen=True)
class PreparedKey:
    """What a score needs to know of the keys, computed once and passed around as a value.

    A score that keeps more than one tensor subclasses this; `rows` and `select` then treat every tensor
    field like `key`, so each must have the shape (..., M, anything).

    Attributes:
        key: The keys as the score uses them, float, shape (..., M, K); K is the score's own width.
        start: Position of the first row, 0-based, for scores that use positions.
    """

    key: Tensor
    start: int = 0

    @property
    def length(self) -> int:
        """Number of keys, M."""
        return self.key.shape[-2]

    def rows(self, rows: slice) -> Self:
        """Keep a contiguous range of the keys.

        Args:
            rows: Which keys, a slice with step 1 over 0..M.

        Returns:
            The same kind of value for those keys, sharing memory with this one.

        Raises:
            ValueError: The slice has a step other than 1.
        """
        first, _, step = rows.indices(self.length)
        if step != 1:
            raise ValueError(f"rows: expected a slice with step 1, got step {step}")
        return replace(self._map(lambda tensor: tensor[..., rows, :]), start=self.start + first)

    def select(self, indices: Tensor) -> Self:
        """Reorder, repeat or drop examples, as beam search does.

        Args:
            indices: Integer, shape (R,); positions along the first leading dimension.

        Returns:
            The same kind of value with R examples.

        Raises:
            ValueError: The keys have no leading dimension to select from.
        """
        if self.key.ndim < 3:
            raise ValueError(
                f"select: the keys have shape {tuple(self.key.shape)} and no leading dimension; "
                "select works on (B, ..., M, K)"
            )
        return self._map(lambda tensor: tensor.index_select(0, indices))

    def examples(self, some: slice) -> Self:
        """Return the keys of some neighbouring examples, without a copy.

        Args:
            some: Which of the first leading dimension.

        Returns:
            Shape (B', ..., M, A).
        """
        return self._map(lambda tensor: tensor[some])

    def _map(self, change: Callable[[Tensor], Tensor]) -> Self:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {k: change(v) for k, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **changed)


class Score(nn.Module):
    """Base of all scores; subclass it, override `forward` and, if keys can be prepared, `prepare_key`.

    Each number must depend on its own query and key (and on their positions) alone: a call may be cut into
    blocks. `headlights.attend` prepares all keys, hidden ones too, because their weights and gradients are
    exactly zero; where NaN may stand in padding, prepare the keys yourself with `visible`, or set
    `needs_visible`.

    Scores of half-precision inputs come in float32: a product of two float16 vectors easily passes 65504.

    Attributes:
        finite: Promises that finite inputs never score minus infinity, which saves looking for it. A score
            of minus infinity hides the key. Default: no promise.
        needs_visible: `prepare_key` decides by the values of the keys, so `headlights.attend` tells it which
            of them the mask shows to some query. Default: it does not.
        pair_width: How many numbers it holds at once for each pair of a query and a key; the blocked path
            makes its blocks by it. Default: 1.
    """

    finite: bool = False
    needs_visible: bool = False
    pair_width: int = 1

    def prepare_key(self, key: Tensor, *, visible: Tensor | None = None, start: int = 0) -> PreparedKey:
        """Do the work that depends on the keys alone.

        Args:
            key: Float, shape (..., M, E_k).
            visible: Bool, shape (..., M) with the leading dimensions of `key` (or broadcast to them); True
                marks keys that some query may look at. The others count as zeros, so that nothing in padding,
                be it NaN, has any influence. Default: all keys.
            start: Position of the first key, 0-based; only scores that use positions read it.

        Returns:
            The prepared keys, for `forward` or `headlights.attend`.
        """
        if visible is not None:
            key = key.masked_fill(~visible[..., None], 0)
        return PreparedKey(self.project_key(key), start)

    def project_key(self, key: Tensor) -> Tensor:
        """Map each key to what `forward` compares queries with; the identity unless overridden.

        Args:
            key: Float, shape (..., M, E_k).

        Returns:
            Shape (..., M, K), K being the score's own width.
        """
        return key

    def forward(self, query: Tensor, prepared: PreparedKey, *, start: int | None = None) -> Tensor:
        """Score every query against every prepared key.

        Args:
            query: Float, shape (..., N, E_q); leading dimensions broadcast with those of the keys.
            prepared: What this score's `prepare_key` returned for M keys.
            start: Position of the first query, 0-based; only scores that use positions read it. Default: the
                last query stands at the last key.

        Returns:
            Shape (..., N, M), float32 for half-precision inputs, else the inputs' type.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define forward(query, prepared, *, start=None)"
        )


def full_precision(device_type: str) -> AbstractContextManager[Any]:
    """Suspend autocast, which would form products in half precision, where they overflow.

    Args:
        device_type: As in `torch.device.type`.

    Returns:
        A context manager; it costs next to nothing where autocast is off.
    """
    on = autocast_dtype(device_type) is not None
    return torch.autocast(device_type, enabled=False) if on else nullcontext()


def autocast_dtype(device_type: str) -> torch.dtype | None:
    """Return the type that autocast casts to, None where it is off or, as on meta tensors, unknown.

    Args:
        device_type: As in `torch.device.type`.

    Returns:
        A half-precision type, or None.
    """
    if not torch.amp.is_autocast_available(device_type) or not torch.is_autocast_enabled(device_type):
        return None
    return torch.get_autocast_dtype(device_type)


def eager_obstacle(tensor: Tensor) -> str | None:
    """Say why a call cannot look at values and bring a backward pass of its own: it is traced or transformed.

    Args:
        tensor: One of its inputs.

    Returns:
        The reason in a few words, or None if it can.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return "runs in eager mode only"
    if torch._C._functorch.peek_interpreter_stack() is not None or forward_ad._current_level >= 0:
        return "works neither inside torch.func nor in forward mode"
    if type(tensor) not in (Tensor, nn.Parameter) or tensor.is_meta:
        return f"needs tensors with values, not {'meta tensors' if tensor.is_meta else type(tensor).__name__}"
    return None


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which products of this type are formed: float32 for the halves."""
    return torch.promote_types(dtype, torch.float32)


def check_width(name: str, tensor: Tensor, letter: str, width: int) -> None:
    """Refuse a tensor whose last dimension is not what is needed.

    Args:
        name: The argument's name.
        tensor: The argument.
        letter: What the width is called.
        width: What it must be.

    Raises:
        ValueError: It is not.
    """
    if tensor.shape[-1] != width:
        raise ValueError(
            f"{name}: expected a last dimension of {letter} = {width}, got {tuple(tensor.shape)}"
        )
