"""The table of the arrays of a step, as `headrace inspect` prints it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.cli import tables
from headrace.cli.inspect.columns import ColumnSummary

HEADER = ("array", "of", "low", "mean", "high", "std", "histogram")


def rows(columns: Mapping[str, str], summaries: Mapping[str, ColumnSummary]) -> list[tuple[Any, ...]]:
    """Returns a row for each array, below `HEADER`.

    Args:
        columns: the name of each array, with its dtype and shape in one step.
        summaries: by name; text and complex numbers have none.
    """
    return [_row(path, shape, summaries.get(path)) for path, shape in columns.items()]


def bars(summary: ColumnSummary) -> str:
    """Returns the histogram in characters that standard output has; nothing without values."""
    histogram = summary.histogram
    return "" if histogram is None else histogram.bars(ascii_only=not tables.can_print("\u2588"))


def _row(path: str, shape: str, summary: ColumnSummary | None) -> tuple[Any, ...]:
    if summary is None:
        return (path, shape, None, None, None, None, "")
    return (path, shape, *map(summary.number, ("low", "mean", "high", "std")), bars(summary))
