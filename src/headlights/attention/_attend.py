"""The attention function: checks its arguments, chooses a path, runs it."""

from collections.abc import Callable
from typing import Any, Literal, overload

from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from headlights.attention._blocked import attend_blocked
from headlights.attention._crossovers import blocks_pay
from headlights.attention._fused import attend_fused, fused_obstacle
from headlights.attention._mask_rules import Mask, check_mask
from headlights.attention._mask_shapes import Grid, broadcast
from headlights.attention._observations import Observation
from headlights.attention._reference import attend_reference
from headlights.attention._rotary import Rotary
from headlights.attention._score_base import PreparedKey, Score, autocast_dtype, eager_obstacle
from headlights.attention._scores import as_score
from headlights.attention._visible_keys import prepare_keys

Path = Literal["auto", "blocked", "fused", "reference"]
PATHS = ("auto", "blocked", "fused", "reference")


@overload
def attend(
    query: Tensor,
    key: Tensor | PreparedKey,
    value: Tensor,
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] | None = ...,
    mask: Mask | None = ...,
    dropout: float = ...,
    observe: None = ...,
    path: Path = ...,
) -> Tensor: ...


@overload
def attend(
    query: Tensor,
    key: Tensor | PreparedKey,
    value: Tensor,
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] | None = ...,
    mask: Mask | None = ...,
    dropout: float = ...,
    observe: Observation | tuple[Observation, ...],
    path: Path = ...,
) -> tuple[Tensor, Any]: ...


def attend(
    query: Tensor,
    key: Tensor | PreparedKey,
    value: Tensor,
    *,
    score: Score | Callable[[Tensor, Tensor], Tensor] | None = None,
    mask: Mask | None = None,
    dropout: float = 0.0,
    observe: Observation | tuple[Observation, ...] | None = None,
    path: Path = "auto",
) -> Tensor | tuple[Tensor, Any]:
    """Average values with weights that say how well each key fits the query.

    Source: source A, "Attention Function": A = softmax(Q Kᵀ / √E) V, their Q, K, V and A are `query`, `key`,
    `value` and the context. A query that may look at no key gets zero weights, a zero context and a zero
    gradient, never NaN.

    Args:
        query: Float, shape (..., N, E); N queries. Leading dimensions broadcast among the three.
        key: Float, shape (..., M, E), or what `score.prepare_key` made of it.
        value: Float, shape (..., M, E_v); one value for each key.
        score: How well a query fits a key: one of `headlights.scores`, or a callable `(query, key) ->
            scores`. Default: `ScaledDot()`.
        mask: Which keys may be looked at and what is added to the scores, from `headlights.masks`. Default:
            every query sees every key.
        dropout: Probability of dropping a weight, 0 <= p < 1; survivors are divided by 1 - p. It acts
            whenever above 0: pass 0 in evaluation. Default: 0.
        observe: What to keep of the weights (before dropout), one observation or a tuple of them. Default:
            nothing.
        path: How to compute: "reference" (the formula), "blocked" (blocks of query rows, in little memory),
            "fused" (torch's kernel) or "auto" (the fastest that can do what is asked). All give the same
            answer. Second derivatives and forward mode need "reference". A callable as `score` is cut into
            blocks only on request, because it must then score each pair on its own. Default: "auto".

    Returns:
        The context, shape (..., N, E_v); with `observe`, the pair of it and what was observed: a result for
        one observation, a tuple of results for a tuple.

    Raises:
        TypeError: `mask`, `score` or `observe` is of the wrong kind, or the inputs differ in type.
        ValueError: Shapes do not fit, `dropout` is out of range, or `path` is unknown or lacks an option.

    Example:
        >>> import torch
        >>> from headlights import attend, masks
        >>> context = attend(torch.zeros(1, 2), torch.ones(3, 2), torch.eye(3), mask=masks.lengths(2))
        >>> context.tolist()
        [[0.5, 0.5, 0.0]]
    """
    inputs = (query, key, value)
    if has_torch_function(inputs):  # a watcher (`headlights.observe`), or a tensor of a subclass
        options = {"score": score, "mask": mask, "dropout": dropout, "observe": observe, "path": path}
        return handle_torch_function(attend, inputs, *inputs, **options)  # type: ignore[arg-type]
    check_mask(mask)
    chosen_score = as_score(score)
    grid = _grid(query, key, value)
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"dropout: expected a probability, 0 <= p < 1, got {dropout}")
    observations = _observations(observe)
    observed = observe is not None
    chosen = choose_path(path, query, score=chosen_score, mask=mask, observed=observed, grid=grid)
    if chosen == "fused":
        if isinstance(chosen_score, Rotary):
            key = key if isinstance(key, PreparedKey) else chosen_score.prepare_key(key)
            query = chosen_score.turn(query, key.start + grid.keys - grid.queries)
            chosen_score = chosen_score.score
        raw = key.key if isinstance(key, PreparedKey) else key
        return attend_fused(query, raw, value, score=chosen_score, mask=mask, dropout=dropout, grid=grid)
    prepared = key if isinstance(key, PreparedKey) else prepare_keys(chosen_score, key, mask, grid)
    run = attend_blocked if chosen == "blocked" else attend_reference
    context, seen = run(
        query,
        prepared,
        value,
        score=chosen_score,
        mask=mask,
        dropout=dropout,
        observations=observations,
        grid=grid,
    )
    if observe is None:
        return context
    return context, seen if isinstance(observe, tuple) else seen[0]


def choose_path(
    path: str, query: Tensor, *, score: Score, mask: Mask | None, observed: bool, grid: Grid
) -> Literal["blocked", "fused", "reference"]:
    """Pick the fastest path that can do all that is asked.

    That is the fused path where it can serve, unless the mask hides most scores; blocks for what is large;
    the reference for the rest. Where a call is traced instead of run, shapes and types alone decide.

    Args:
        path: What the caller asked for, "auto" or one path.
        query: Float, shape (..., N, E).
        score: The score asked for.
        mask: The mask asked for, or None.
        observed: Whether observations are asked for.
        grid: The sizes.

    Returns:
        The path to run.

    Raises:
        ValueError: `path` is unknown, or cannot do what is asked.
    """
    if path == "reference":
        return "reference"
    if path not in PATHS:
        raise ValueError(f"path: expected one of {', '.join(PATHS)}, got {path!r}")
    if path == "blocked":
        obstacle = eager_obstacle(query)
        if obstacle is not None:
            raise ValueError(f"path: 'blocked' {obstacle}; use path='auto' or 'reference'")
        return "blocked"
    obstacle = fused_obstacle(query, score=score, mask=mask, observed=observed)
    if path == "fused" and obstacle is not None:
        raise ValueError(f"path: 'fused' {obstacle}; use path='auto' or 'reference'")
    # Sizes may be symbols where a call is traced, so that is asked first.
    eager = path == "auto" and eager_obstacle(query) is None
    if eager and blocks_pay(score, mask, grid, fused=obstacle is None):
        return "blocked"
    return "fused" if obstacle is None else "reference"


def _grid(query: Tensor, key: Tensor | PreparedKey, value: Tensor) -> Grid:
    """Check that the three inputs fit together and return the sizes of their scores."""
    keys = key.key if isinstance(key, PreparedKey) else key
    if query.ndim < 2 or keys.ndim < 2 or value.ndim < 2:
        shapes = f"{tuple(query.shape)}, {tuple(keys.shape)} and {tuple(value.shape)}"
        raise ValueError(f"query, key, value: expected (..., N, E), (..., M, E), (..., M, E_v), got {shapes}")
    mixed = isinstance(key, Tensor) and not query.dtype == keys.dtype == value.dtype
    if mixed and autocast_dtype(query.device.type) is None:  # autocast brings them to one type
        types = f"{query.dtype}, {keys.dtype} and {value.dtype}"
        raise TypeError(f"query, key, value: expected one floating type, got {types}")
    if keys.shape[-2] != value.shape[-2]:
        raise ValueError(
            f"value: expected one row for each of the {keys.shape[-2]} keys, got shape {tuple(value.shape)}"
        )
    leading: tuple[int, ...] = query.shape[:-2]
    if not leading == keys.shape[:-2] == value.shape[:-2]:
        try:
            leading = broadcast(leading, keys.shape[:-2], value.shape[:-2])
        except RuntimeError:
            shapes = f"{tuple(leading)}, {tuple(keys.shape[:-2])} and {tuple(value.shape[:-2])}"
            raise ValueError(f"query, key, value: leading dimensions {shapes} do not broadcast") from None
    return Grid(tuple(leading), query.shape[-2], keys.shape[-2], query.device)


def _observations(observe: Observation | tuple[Observation, ...] | None) -> tuple[Observation, ...]:
    if observe is None:
        return ()
    observations = observe if isinstance(observe, tuple) else (observe,)
    for observation in observations:
        if not isinstance(observation, Observation):
            raise TypeError(
                f"observe: expected an observation such as observations.Weights() or a tuple of them, "
                f"got {observation!r}"
            )
    return observations
