"""Statistics of the columns of steps, gathered part by part, and the suspicious things in them.

One place for `ReplaySample.describe` and `headrace inspect`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class ColumnStatistics:
    """Numbers of one column.

    Attributes:
        dtype: of its values.
        shape: of one row.
        rows: number of rows.
        low, high: the smallest and the largest value that is finite; NaN without one.
        mean, std: of the finite values; NaN without one.
        rows_with_nan, rows_with_infinity: numbers of rows.
        is_constant: whether all rows are equal, of two rows or more.
    """

    dtype: str
    shape: tuple[int, ...]
    rows: int
    low: float
    high: float
    mean: float
    std: float
    rows_with_nan: int
    rows_with_infinity: int
    is_constant: bool


class ColumnTally:
    """Gathers the statistics of a column from parts of it, in bounded memory.

    Args:
        dtype: of its values: numbers or booleans.
        shape: of one row.

    >>> tally = ColumnTally(np.dtype("float32"), ())
    >>> tally.add(np.array([1.0, 3.0], np.float32))
    >>> tally.add(np.array([np.nan], np.float32))
    >>> found = tally.statistics()
    >>> found.rows, found.low, found.high, found.mean, found.std, found.rows_with_nan
    (3, 1.0, 3.0, 2.0, 1.0, 1)
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape
        self._rows = self._nan = self._infinite = self._count = 0
        self._low, self._high = math.inf, -math.inf
        self._mean = self._squares = 0.0
        self._first: NDArray[Any] | None = None
        self._is_constant = True

    def add(self, rows: NDArray[Any]) -> None:
        """Takes rows `[n, ...]`."""
        if not len(rows):
            return
        self._rows += len(rows)
        if self._first is None:
            self._first = rows[:1].copy()
        # NaN is equal to NaN here: a column of nothing else is constant, too.
        self._is_constant = self._is_constant and np.array_equal(
            np.broadcast_to(self._first, rows.shape), rows, equal_nan=rows.dtype.kind in "fc"
        )
        values = rows.astype(np.float64).reshape(len(rows), -1)
        if rows.dtype.kind == "f":
            self._nan += int(np.isnan(values).any(axis=1).sum())
            self._infinite += int(np.isinf(values).any(axis=1).sum())
            values = values[np.isfinite(values)]
        if values.size:
            self._add_values(values)

    def _add_values(self, values: NDArray[np.float64]) -> None:
        """Merges the moments of some values with those so far (T. Chan, G. Golub and R. LeVeque, 1979)."""
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        count, mean = values.size, float(values.mean())
        total, delta = self._count + count, mean - self._mean
        self._squares += float(((values - mean) ** 2).sum()) + delta**2 * self._count * count / total
        self._mean += delta * count / total
        self._count = total

    def statistics(self) -> ColumnStatistics:
        """Returns the statistics of the rows so far."""
        has_values = self._count > 0
        return ColumnStatistics(
            self._dtype.name,
            self._shape,
            self._rows,
            self._low if has_values else math.nan,
            self._high if has_values else math.nan,
            self._mean if has_values else math.nan,
            math.sqrt(self._squares / self._count) if has_values else math.nan,
            self._nan,
            self._infinite,
            self._is_constant and self._rows > 1,
        )


def suspicions(columns: Mapping[str, ColumnStatistics]) -> list[str]:
    """Returns sentences about columns that may be wrong: NaN, constant, flags never or always set, rewards of one sign.

    Args:
        columns: by name; `reward`, `terminated` and `truncated` have rules of their own.

    >>> tally = ColumnTally(np.dtype("float32"), ())
    >>> tally.add(np.zeros(5, np.float32))
    >>> suspicions({"reward": tally.statistics()})
    ['reward: 0 in all 5 rows']
    """
    found = []
    for name, column in columns.items():
        if column.rows_with_nan:
            found.append(f"{name}: NaN in {column.rows_with_nan} of {column.rows} rows")
        if column.rows_with_infinity:
            found.append(f"{name}: infinite in {column.rows_with_infinity} of {column.rows} rows")
        if name in ("terminated", "truncated"):
            if column.rows > 1 and column.low == 1:
                found.append(f"{name}: set in all {column.rows} rows")
        elif column.is_constant:
            value = f"{column.low:g}" if column.low == column.high else "the same values"
            found.append(f"{name}: {value} in all {column.rows} rows")
    terminated, reward = columns.get("terminated"), columns.get("reward")
    if terminated is not None and terminated.rows > 1 and terminated.high == 0:
        found.append(f"terminated: not set in any of {terminated.rows} rows")
    if reward is not None and not reward.is_constant and (reward.low > 0 or reward.high < 0):
        found.append(f"reward: all {'positive' if reward.low > 0 else 'negative'}")
    return found
