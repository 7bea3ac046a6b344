"""Statistics and histograms of the arrays of a step, gathered part by part in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.column_statistics import ColumnStatistics, ColumnTally, suspicions
from headrace.cli.inspect.histogram import Histogram, HistogramTally

# Values that are gathered before they are counted: 1 MiB of float64.
_VALUES_AT_ONCE = 1 << 17
# Components of a vector whose ranges are kept. Images have more; pixels at their border are often constant.
_MOST_COMPONENTS = 1024
_COMPONENTS_NAMED = 8


@dataclass(frozen=True)
class ColumnSummary:
    """One array of a step.

    Attributes:
        statistics: of all its rows.
        histogram: of its finite values; None without one.
        constant_components: indices of the components of a vector that have one value in all rows, in a vector that is
            not constant itself.
    """

    statistics: ColumnStatistics
    histogram: Histogram | None
    constant_components: tuple[int, ...]

    def number(self, name: str) -> float | int | None:
        """Returns `low`, `high`, `mean` or `std`; None where it is not known. The ends of whole numbers are int."""
        value: float = getattr(self.statistics, name)
        if not np.isfinite(value):
            return None
        is_whole = name in ("low", "high") and np.dtype(self.statistics.dtype).kind in "biu"
        return int(value) if is_whole else value

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        histogram = self.histogram
        return {
            **asdict(self.statistics),
            "shape": list(self.statistics.shape),
            **{name: self.number(name) for name in ("low", "high", "mean", "std")},
            "histogram": None
            if histogram is None
            else {"low": histogram.low, "width": histogram.width, "counts": histogram.counts.tolist()},
            "constant_components": list(self.constant_components),
        }


class ColumnGatherer:
    """Gathers the summary of one column.

    Args:
        dtype: of its values: real numbers or booleans.
        shape: of one row.

    >>> gatherer = ColumnGatherer(np.dtype("int64"), (2,))
    >>> gatherer.add(np.array([[1, 7], [2, 7]]))
    >>> found = gatherer.summary()
    >>> found.number("high"), found.histogram.counts.tolist(), found.constant_components
    (7, [1, 1, 0, 0, 0, 0, 2], (1,))
    """

    def __init__(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._tally = ColumnTally(dtype, shape)
        self._histogram = HistogramTally(whole_numbers=dtype.kind in "biu")
        self._values_per_row = int(np.prod(shape))
        self._rows_at_once = max(1, _VALUES_AT_ONCE // max(self._values_per_row, 1))
        self._ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
        self._waiting: list[NDArray[Any]] = []
        self._rows_waiting = 0

    def add(self, rows: NDArray[Any]) -> None:
        """Takes rows `[n, ...]`."""
        for begin in range(0, len(rows), self._rows_at_once):
            part = rows[begin : begin + self._rows_at_once]
            # Not the array itself: it may be a part of the memory of a whole episode.
            self._waiting.append(part.copy())
            self._rows_waiting += len(part)
            # Many short episodes are counted at once: a count of a few rows takes as long as one of hundreds.
            if self._rows_waiting >= self._rows_at_once:
                self._count()

    def summary(self) -> ColumnSummary:
        """Returns the summary of the rows so far."""
        self._count()
        statistics = self._tally.statistics()
        constant: tuple[int, ...] = ()
        if self._ranges is not None and not statistics.is_constant and statistics.rows > 1:
            constant = tuple(np.flatnonzero(self._ranges[0] == self._ranges[1]).tolist())
        return ColumnSummary(statistics, self._histogram.histogram(), constant)

    def _count(self) -> None:
        if not self._waiting:
            return
        rows = np.concatenate(self._waiting)
        self._waiting, self._rows_waiting = [], 0
        # The squares of values near the limits of floats have no finite sum; then `std` is not known.
        with np.errstate(over="ignore", invalid="ignore"):
            self._tally.add(rows)
        self._count_values(rows.reshape(-1))
        if 2 <= self._values_per_row <= _MOST_COMPONENTS:
            self._count_components(rows.reshape(len(rows), -1))

    def _count_values(self, values: NDArray[Any]) -> None:
        if values.dtype == np.uint8:
            # Images: 256 counts are quicker than as many bins as there are pixels.
            times = np.bincount(values, minlength=256)
            found = np.flatnonzero(times)
            self._histogram.add(found.astype(np.float64), times[found])
        else:
            numbers = values.astype(np.float64)
            self._histogram.add(numbers[np.isfinite(numbers)])

    def _count_components(self, rows: NDArray[Any]) -> None:
        # A NaN makes both ends NaN, which are not equal: such a component is reported as NaN.
        low, high = rows.min(axis=0), rows.max(axis=0)
        if self._ranges is not None:
            low, high = np.minimum(low, self._ranges[0]), np.maximum(high, self._ranges[1])
        self._ranges = low, high


def is_counted(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Returns True for rows of real numbers or booleans; text, complex numbers and empty rows have no range."""
    return dtype.kind in "biuf" and 0 not in shape


def column_suspicions(columns: Mapping[str, ColumnSummary]) -> list[str]:
    """Returns sentences about columns that may be wrong.

    Args:
        columns: by name, such as `reward`, `terminated`, `observation/position`.
    """
    return [
        *suspicions({name: column.statistics for name, column in columns.items()}),
        *_constant_components(columns),
    ]


def without_constancy(column: ColumnSummary) -> ColumnSummary:
    """Returns the summary of a column that may well be constant, such as the version of a policy."""
    return replace(column, statistics=replace(column.statistics, is_constant=False), constant_components=())


def _constant_components(columns: Mapping[str, ColumnSummary]) -> Iterator[str]:
    for name, column in columns.items():
        if found := column.constant_components:
            named = ", ".join(map(str, found[:_COMPONENTS_NAMED]))
            more = "" if len(found) <= _COMPONENTS_NAMED else ", ..."
            total = int(np.prod(column.statistics.shape))
            yield f"{name}: {len(found)} of {total} components have one value in all rows: {named}{more}"
