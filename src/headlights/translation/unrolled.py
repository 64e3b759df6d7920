"""Products and GRU cells over many steps, whose gradients are made of all steps at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

Linear = Callable[[Tensor], Tensor]
_Ledger = dict[int, tuple[Tensor, Tensor]]


def once(weight: Tensor, bias: Tensor | None) -> Linear:
    """A linear map as torch applies it.

    Args:
        weight: Shape (E_out, E_in).
        bias: Shape (E_out,), or None.

    Returns:
        The map, of inputs of shape (..., E_in).
    """
    return partial(F.linear, weight=weight, bias=bias)


class Repeated:
    """A product with the same matrix at each of many steps.

    Step by step, the gradient of the matrix would be a product of few rows at each step, and a sum as large
    as the matrix: with a batch of 64 sentences that takes longer than the steps themselves. Here the rows and
    their gradients are noted down on the way back, and one product of all of them makes the gradient at the
    end. With autocast the matrix is made short once.

    Args:
        matrix: Shape (..., E_in, E_out).
        bias: Shape (E_out,), of a single matrix; or None.
    """

    def __init__(self, matrix: Tensor, bias: Tensor | None = None) -> None:
        self._ledger: _Ledger = {}
        self._steps = 0
        apply: Any = _Operands.apply  # torch leaves it without types
        device = matrix.device.type
        short = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else matrix.dtype
        self._matrix, self._bias = apply(matrix, bias, short, self._ledger)

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply.

        Args:
            x: Float, shape (..., N, E_in).

        Returns:
            Shape (..., N, E_out), of autocast's type if there is one.
        """
        self._steps += 1
        apply: Any = _Step.apply
        applied: Tensor = apply(x.to(self._matrix.dtype), self._matrix, self._bias, self._steps, self._ledger)
        return applied


def repeated(weight: Tensor, bias: Tensor | None) -> Linear:
    """A linear map for many steps.

    Args:
        weight: Shape (E_out, E_in).
        bias: Shape (E_out,), or None.

    Returns:
        The map, of inputs of shape (B, E_in).
    """
    return Repeated(weight.mT, bias)


class _Operands(torch.autograd.Function):
    """Matrix and bias as the steps use them; on the way back it comes after all of them."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, bias: Tensor | None, dtype: torch.dtype, ledger: _Ledger
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.ledger, ctx.dtypes = ledger, (matrix.dtype, None if bias is None else bias.dtype)
        return matrix.to(dtype, copy=True), None if bias is None else bias.to(dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, gradients = (torch.cat(side, -2) for side in zip(*ctx.ledger.values(), strict=True))
        ctx.ledger.clear()
        by_matrix = (rows.mT @ gradients).to(ctx.dtypes[0])
        by_bias = None if ctx.dtypes[1] is None else gradients.sum(0, dtype=ctx.dtypes[1])
        return by_matrix, by_bias, None, None


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, step: int, ledger: _Ledger
    ) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.step, ctx.ledger = step, ledger
        with torch.autocast(x.device.type, enabled=False):
            return x @ matrix if bias is None else torch.addmm(bias, x, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, matrix = ctx.saved_tensors
        ctx.ledger[ctx.step] = x, gradient  # a second way back takes the place of the first
        return gradient @ matrix.mT, None, None, None, None


def gru_cell(inputs: Tensor, hidden: Tensor, read: Linear, keep: Linear) -> Tensor:
    """One step of a GRU, as `torch.gru_cell`.

    Args:
        inputs: Float, shape (B, E_in).
        hidden: State, float, shape (B, E).
        read: Of the input, to reset gate, update gate and new state, shape (B, 3 * E).
        keep: The same of the state.

    Returns:
        The next state, shape and type as `hidden`.
    """
    apply: Any = _Gates.apply
    state: Tensor = apply(read(inputs).to(hidden.dtype), keep(hidden).to(hidden.dtype), hidden)
    return state


class _Gates(torch.autograd.Function):
    """r, z = sigmoid(i + h), n = tanh(i + r h), (1 - z) n + z u: ten small derivatives in one."""

    @staticmethod
    def forward(ctx: Any, by_input: Tensor, by_state: Tensor, state: Tensor) -> Tensor:
        width = state.size(-1)
        gates = torch.sigmoid(by_input[:, : 2 * width] + by_state[:, : 2 * width])
        reset, update = gates.chunk(2, -1)
        kept = by_state[:, 2 * width :]
        new = torch.addcmul(by_input[:, 2 * width :], reset, kept).tanh_()
        ctx.save_for_backward(gates, new, kept, state)
        return torch.lerp(new, state, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates, new, kept, state = ctx.saved_tensors
        width = state.size(-1)
        reset, update = gates.chunk(2, -1)
        by_state = gradient * update
        by_input = gradient.new_empty(len(gradient), 3 * width)
        by_gates, by_new = by_input[:, : 2 * width], by_input[:, 2 * width :]
        torch.mul(gradient - by_state, 1.0 - new * new, out=by_new)
        torch.mul(by_new, kept, out=by_gates[:, :width])
        torch.mul(gradient, state - new, out=by_gates[:, width:])
        by_gates.mul_(gates * (1.0 - gates))
        by_kept = by_input.clone()
        by_kept[:, 2 * width :].mul_(reset)
        return by_input, by_kept, by_state


def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, read: Linear, keep: Linear
) -> tuple[Tensor, Tensor]:
    """One step of an LSTM, as `torch.lstm_cell`.

    Args:
        inputs: Float, shape (B, E_in).
        hidden: State, float, shape (B, E).
        cell: Cell state, float, shape (B, E).
        read: Of the input, to input gate, forget gate, new cell and output gate, shape (B, 4 * E).
        keep: The same of the state.

    Returns:
        The next state and cell state, shape and type as `cell`.
    """
    gates = (read(inputs) + keep(hidden)).to(cell.dtype)
    entering, forgetting, new, leaving = gates.chunk(4, -1)
    cell = forgetting.sigmoid() * cell + entering.sigmoid() * new.tanh()
    return leaving.sigmoid() * cell.tanh(), cell
