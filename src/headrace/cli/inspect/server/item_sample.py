"""Random items of a table on a server, which do not count as samples, and statistics of their rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.cli.inspect.columns import ColumnGatherer, ColumnSummary, column_suspicions, is_counted
from headrace.errors import ItemNotFound
from headrace.replay import ReplaySample
from headrace.server.client.remote_replay import RemoteReplay

# Items that are asked for, one by one, and the rows of each that are read.
MOST_ITEMS, MOST_ROWS = 256, 256
_MOST_BYTES = 32 << 20
_MOST_SECONDS = 2.0
# Below it, chance makes columns look constant, and rewards have one sign.
_ROWS_TO_JUDGE = 100
# Flags are rare: a sample may well have none.
_FLAGS = ("terminated", "truncated")


@dataclass(frozen=True)
class ItemSample:
    """Statistics of some items of a table.

    Attributes:
        items, rows: numbers of different items and of their rows.
        priorities: of the items.
        columns: by name; text and complex numbers are left out.
    """

    items: int
    rows: int
    priorities: ColumnSummary
    columns: dict[str, ColumnSummary]

    def suspicions(self) -> list[str]:
        """Returns sentences about the columns; none for a few rows, in which chance would show much."""
        if self.rows < _ROWS_TO_JUDGE:
            return []
        return column_suspicions({name: each for name, each in self.columns.items() if name not in _FLAGS})

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        return {
            "items": self.items,
            "rows": self.rows,
            "priorities": self.priorities.as_json(),
            "columns": {name: each.as_json() for name, each in self.columns.items()},
        }


def sample_items(
    replay: RemoteReplay, name: str, row_bytes: int, *, clock: Callable[[], float] = time.monotonic
) -> ItemSample | None:
    """Asks for random items of a table, for two seconds at most; None if it has no items.

    Args:
        replay: on the server.
        name: of the table.
        row_bytes: of one row, to limit how much is read.
        clock: returns seconds.

    Raises:
        Disconnected: the server is gone.
    """
    table, end = replay.table(name), clock() + _MOST_SECONDS
    max_rows = max(1, min(MOST_ROWS, _MOST_BYTES // max(row_bytes, 1)))
    gatherer = _Gatherer(replay)
    for _ in range(MOST_ITEMS):
        try:
            gatherer.add(table.peek(max_rows=max_rows))
        except ItemNotFound:
            break
        if gatherer.rows_read * row_bytes >= _MOST_BYTES or clock() >= end:
            break
    return gatherer.sample() if gatherer.rows else None


class _Gatherer:
    """Counts the rows of different items.

    Attributes:
        rows: of different items.
        rows_read: of all items, padding included.
    """

    def __init__(self, replay: RemoteReplay) -> None:
        self.rows = self.rows_read = 0
        self._signature = replay.signature
        self._keys: set[int] = set()
        self._priorities = ColumnGatherer(np.dtype(np.float64), ())
        self._columns = {
            path: ColumnGatherer(spec.dtype, spec.shape)
            for path, spec in replay.signature.columns.items()
            if is_counted(spec.dtype, spec.shape)
        }

    def add(self, item: ReplaySample) -> None:
        self.rows_read += item.layout.length or 1
        key = int(item.info.keys[0])
        if key in self._keys:
            return
        self._keys.add(key)
        self._priorities.add(item.info.priorities)
        columns = self._signature.flatten(item.data)
        for path, gatherer in self._columns.items():
            gatherer.add(_rows(item, columns[path]))
        self.rows += 1 if item.layout.length is None else len(_rows(item, next(iter(columns.values()))))

    def sample(self) -> ItemSample:
        columns = {path: gatherer.summary() for path, gatherer in self._columns.items()}
        return ItemSample(len(self._keys), self.rows, self._priorities.summary(), columns)


def _rows(item: ReplaySample, values: NDArray[Any]) -> NDArray[Any]:
    """Returns the real rows of a batch of one item."""
    if item.layout.length is None:
        return values
    real: NDArray[Any] = values[0] if item.mask is None else values[0][item.mask[0]]
    return real
