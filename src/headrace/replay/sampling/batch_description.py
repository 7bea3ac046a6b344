"""The description of a sampled batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.column_statistics import ColumnStatistics, ColumnTally, suspicions
from headrace.statistics import FrozenDict
from headrace.trees import compile_tree, leaves


@dataclass(frozen=True)
class BatchDescription:
    """Statistics of the columns of a batch, and what is suspicious in them. Its text is a table.

    Attributes:
        items: number of items.
        different_items: number of them with different keys.
        rows: number of real rows, all items together.
        columns: by name.
        terminated, truncated: shares of rows with the flag; NaN without such a column.
        suspicious: sentences about what may be wrong; a small batch may show such things by chance.
    """

    items: int
    different_items: int
    rows: int
    columns: Mapping[str, ColumnStatistics]
    terminated: float
    truncated: float
    suspicious: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{self.items} items ({self.different_items} different), {self.rows} rows"]
        lines.append(
            f"{'column':24} {'dtype':8} {'shape':14} {'low':>10} {'high':>10} {'mean':>10} {'std':>10}"
        )
        for name, column in self.columns.items():
            numbers = " ".join(f"{x:>10.4g}" for x in (column.low, column.high, column.mean, column.std))
            lines.append(f"{name:24} {column.dtype:8} {column.shape!s:14} {numbers}")
        if self.suspicious:
            lines += ["worth a look:", *(f"  {sentence}" for sentence in self.suspicious)]
        return "\n".join(lines)


def described(data: Any, keys: NDArray[np.uint64], mask: Any) -> BatchDescription:
    """Returns the description of a batch.

    Args:
        data: a tree of arrays `[B, ...]`, or `[B, L, ...]` with a mask.
        keys: uint64[B], of the items.
        mask: bool[B, L], the real rows; None if all are.
    """
    real = None if mask is None else _numpy(mask)
    columns, rows = {}, len(keys)
    for name, leaf in _columns_of(data).items():
        array = _numpy(leaf)
        chosen = array if real is None or array.shape[:2] != real.shape else array[real]
        tally = ColumnTally(array.dtype, chosen.shape[1:])
        tally.add(chosen)
        columns[name] = tally.statistics()
        rows = max(rows, len(chosen))
    shares = [columns[name].mean if name in columns else float("nan") for name in ("terminated", "truncated")]
    found = suspicions(columns)
    return BatchDescription(
        len(keys), len(np.unique(keys)), rows, FrozenDict(columns), shares[0], shares[1], tuple(found)
    )


def _columns_of(data: Any) -> dict[str, Any]:
    """Returns the leaves by their paths; the name of a view may contain a slash, which no tree may."""
    parts = data.items() if isinstance(data, dict) else [("", data)]
    nodes = (compile_tree(part, lambda value: hasattr(value, "dtype"), name) for name, part in parts)
    return {leaf.path: leaf.value for node in nodes for leaf in leaves(node)}


def _numpy(array: Any) -> NDArray[Any]:
    """Returns the values of an array of any framework."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)
