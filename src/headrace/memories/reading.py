"""Copies of rows: checked indexes, mini-batches, and the gather itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

Rows = torch.Tensor | slice
MiniBatch = list[torch.Tensor | None]


def check_mini_batches(mini_batches: int) -> None:
    """Raise ValueError for fewer than one mini-batch."""
    if mini_batches < 1:
        raise ValueError(f"mini_batches: expected at least 1, got {mini_batches}")


def split(units: int, mini_batches: int) -> list[tuple[int, int]]:
    """Where each of `mini_batches` parts of `units` starts and stops; the first ones have one unit more.

    Raises:
        ValueError: fewer than one mini-batch.
    """
    check_mini_batches(mini_batches)
    size, longer = divmod(units, mini_batches)
    stops = [part * size + min(part, longer) for part in range(mini_batches + 1)]
    return list(pairwise(stops))


def gather(views: Sequence[torch.Tensor | None], rows: Rows) -> MiniBatch:
    """Copies of the rows of each view; None where a tensor is absent."""
    if isinstance(rows, slice):
        return [None if view is None else view[rows].clone() for view in views]
    # index_select copies whole rows; indexing with a tensor copies element by element.
    return [None if view is None else view.index_select(0, rows) for view in views]


def gather_parts(
    views: Sequence[torch.Tensor | None], rows: torch.Tensor, mini_batches: int, unit: int = 1
) -> list[MiniBatch]:
    """Mini-batches of `rows`; `unit` of them stay together.

    Raises:
        ValueError: fewer than one mini-batch.
    """
    if mini_batches == 1:
        return [gather(views, rows)]
    bounds = split(rows.shape[0] // unit, mini_batches)
    return [gather(views, rows[start * unit : stop * unit]) for start, stop in bounds]


def as_rows(indexes: Any, cells: int) -> torch.Tensor:
    """Flat indexes int64[n] in `0 .. cells - 1` from a list, an array, a tensor, a mask or a slice.

    Raises:
        TypeError: not integers, nor a mask, nor a slice.
        IndexError: out of range, or a mask of another length.
    """
    if isinstance(indexes, torch.Tensor) and indexes.dtype is torch.int64 and indexes.ndim == 1:
        return _in_range(indexes, cells)
    if isinstance(indexes, slice):
        return torch.arange(cells)[indexes] if indexes.step is None else torch.arange(*indexes.indices(cells))
    rows = _to_vector(indexes)
    if rows.dtype is torch.bool:
        if len(rows) != cells:
            raise IndexError(f"indexes: expected a mask of length {cells}, got {len(rows)}")
        return rows.nonzero().view(-1)
    if rows.dtype.is_floating_point or rows.dtype.is_complex:
        raise TypeError(f"indexes: expected integers, a mask of length {cells} or a slice, got {rows.dtype}")
    return _in_range(rows.to(torch.int64), cells)


def _to_vector(indexes: Any) -> torch.Tensor:
    if isinstance(indexes, list | tuple):
        indexes = np.asarray(indexes) if len(indexes) else np.empty(0, np.int64)
    if isinstance(indexes, np.ndarray):
        if indexes.dtype.kind not in "biu":
            raise TypeError(f"indexes: expected integers, a mask or a slice, got an array of {indexes.dtype}")
        indexes = torch.from_numpy(indexes.astype(bool if indexes.dtype.kind == "b" else np.int64))
    if not isinstance(indexes, torch.Tensor):
        raise TypeError(
            f"indexes: expected a list, an array, a tensor or a slice, got {type(indexes).__name__}"
        )
    if indexes.ndim != 1:
        raise IndexError(f"indexes: expected one axis, got shape {tuple(indexes.shape)}")
    return indexes


def _in_range(rows: torch.Tensor, cells: int) -> torch.Tensor:
    if len(rows) == 0:
        return rows
    least, most = (extreme.item() for extreme in torch.aminmax(rows))
    if least < -cells or most >= cells:
        raise IndexError(f"indexes: expected {-cells} to {cells - 1}, got {least} to {most}")
    return rows if least >= 0 else torch.where(rows < 0, rows + cells, rows)
