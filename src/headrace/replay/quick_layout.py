"""Where everything of a batch stands in its one stretch of memory (`replay.quick`)."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.quick_kernel import (
    BATCH,
    COPIED,
    COUNTS,
    DISCOUNTS,
    FOLLOWING,
    FOUND,
    HAS_AXIS,
    KNOWN_AT,
    LAST_ROWS,
    LENGTH,
    N_STEP,
    NUMBERS,
    OFFSETS,
    OFFSETS_AT,
    PLACE,
    RETURNS,
    REWARD,
    REWARD_NBYTES,
    SIZES,
    TABLE_AT,
    TERMINATED,
    WINDOW_COLUMNS,
    WINDOWS,
)
from headrace.store.records import COUNT, ROWS, TO, by_rows, fields, record_layout
from headrace.store.store import Store
from headrace.views.quick import LAST, THE_ROWS, QuickViews

_LINE = 64


class Quick(NamedTuple):
    """How batches of one size of one table are made.

    Attributes:
        nbytes: of the stretch that takes a batch.
        block: its fields: the numbers of the items by their names, sums as "sum:reward", views as "/" and their name.
            Of wide columns it is the rows' numbers, which several views may share.
        numbers: int64[...], for the kernel, in one array: `sizes`, `windows`, the offsets of all windows, and the table
            for `copy_fields`.
        sizes: int64[SIZES].
        windows: int64[W, WINDOW_COLUMNS]: BEGIN and number of OFFSETS among the offsets, ACTING_GIVES, PLACE of its
            first row number, that of the first row from which it looks, STARTS, and whether it LOOKS_AHEAD of it.
    """

    nbytes: int
    block: np.dtype[Any]
    numbers: NDArray[np.int64]
    sizes: NDArray[np.int64]
    windows: NDArray[np.int64]


def quick(store: Store, views: QuickViews, batch: int, length: int, *, sequences: bool) -> Quick:
    """Lay out the stretch for batches of `batch` items of `length` rows.

    Args:
        sequences: whether columns are presented as `[B, L, ...]`, and not `[B, ...]`.
    """
    rows = batch * length
    leading = (batch, length) if sequences else (batch,)
    sizes = np.zeros(SIZES, np.int64)
    # The rows themselves, then those of sums, then those of windows.
    sizes[BATCH], sizes[LENGTH], sizes[LAST_ROWS], sizes[FOLLOWING] = batch, length, rows, 2 * rows
    sizes[HAS_AXIS] = sequences
    windows, count = _windows(views, rows, 3 * rows if views.n_step else rows)
    fields_of = _Fields(8 * batch * len(NUMBERS))
    for name, dtype in zip(NUMBERS, [np.uint64, *[np.int64] * 4, *[np.float64] * 2], strict=True):
        fields_of.add_at(8 * batch * len(fields_of.names), name, np.dtype(dtype), (batch,))
    sizes[FOUND] = fields_of.end
    sizes[KNOWN_AT] = fields_of.end + 8 * count
    fields_of.end += 9 * count
    if views.n_step:
        _place_sums(store, views, sizes, fields_of, leading)
    table = _place_views(store, views, sizes, windows, fields_of, leading)
    offsets = np.array([offset for window in views.windows for offset in window.offsets], np.int64)
    sizes[WINDOWS] = len(windows)
    sizes[OFFSETS_AT] = SIZES + windows.size
    sizes[TABLE_AT] = sizes[OFFSETS_AT] + offsets.size
    numbers = np.concatenate([sizes, windows.reshape(-1), offsets, table.reshape(-1)])
    return Quick(fields_of.end, fields_of.block(), numbers, sizes, windows)


class _Fields:
    """Collects the fields of a stretch."""

    def __init__(self, begin: int) -> None:
        self.names: list[str] = []
        self._formats: list[Any] = []
        self._offsets: list[int] = []
        self.end = begin

    def add(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        """One more field, at the next line of the cache; returns where."""
        begin = -(-self.end // _LINE) * _LINE
        self.add_at(begin, name, dtype, shape)
        self.end = begin + prod(shape) * dtype.itemsize
        return begin

    def add_at(self, begin: int, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """A field in a place of its own."""
        self.names.append(name)
        self._formats.append((dtype, shape))
        self._offsets.append(begin)

    def block(self) -> np.dtype[Any]:
        """All of them side by side."""
        found: Any = {
            "names": self.names,
            "formats": self._formats,
            "offsets": self._offsets,
            "itemsize": self.end,
        }
        made: np.dtype[Any] = np.dtype(found)
        return made


def _windows(views: QuickViews, rows: int, place: int) -> tuple[NDArray[np.int64], int]:
    """The table of windows whose row numbers begin at `place`, and how many row numbers there are in all."""
    table = np.zeros((len(views.windows), WINDOW_COLUMNS), np.int64)
    begin = 0
    for number, window in enumerate(views.windows):
        starts = 0 if window.next_of is None else 2 * rows
        looks_ahead = max(window.offsets) > 0
        table[number] = begin, len(window.offsets), window.acting_gives, place, starts, looks_ahead
        begin += len(window.offsets)
        place += rows * len(window.offsets)
    return table, place


def _place_sums(
    store: Store, views: QuickViews, sizes: NDArray[np.int64], into: _Fields, leading: tuple[int, ...]
) -> None:
    layout, reward = record_layout(store.signature), store.signature.columns["reward"].dtype
    sizes[N_STEP] = views.n_step
    sizes[REWARD], sizes[REWARD_NBYTES] = layout.offsets["reward"], reward.itemsize
    sizes[TERMINATED] = layout.offsets["terminated"]
    sizes[RETURNS] = into.add("sum:reward", reward, leading)
    sizes[DISCOUNTS] = into.add("sum:discount", reward, leading)
    sizes[COUNTS] = into.add("sum:n", np.dtype(np.int64), leading)


def _place_views(
    store: Store,
    views: QuickViews,
    sizes: NDArray[np.int64],
    windows: NDArray[np.int64],
    into: _Fields,
    leading: tuple[int, ...],
) -> NDArray[np.int64]:
    """The table for `copy_fields`; the field of a wide column's view holds the numbers of its rows."""
    rows = prod(leading)
    small = [view for view in views.views if not view.is_wide]
    table = fields(record_layout(store.signature), [(view.column, view.spec.nbytes) for view in small])
    line = 0
    for view in views.views:
        width = int(windows[view.window, OFFSETS]) if view.window >= 0 else 1
        begin = {THE_ROWS: 0, LAST: rows}.get(view.window)
        if begin is None:
            begin = int(windows[view.window, PLACE])
        shape = leading + ((width,) if view.has_window else ())
        if view.is_wide:
            into.add_at(int(sizes[FOUND]) + 8 * begin, f"/{view.name}", np.dtype(np.int64), shape)
            continue
        table[line, ROWS], table[line, COUNT] = begin, rows * width
        table[line, TO] = into.add(f"/{view.name}", view.spec.dtype, shape + view.spec.shape)
        line += 1
    sizes[COPIED] = (table[:, ROWS] + table[:, COUNT]).max(initial=0)
    return by_rows(table)
