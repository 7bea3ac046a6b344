"""Fields of a fused batch in its buffer, and of the kernel's scratch buffer."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.fused_kernel import MOVE_WORDS, OFFSETS, PLACE, WINDOW_WORDS
from headrace.replay.sampling.fused_layout import FusedLayout
from headrace.store.records import COUNT, ROWS, TO, by_rows, fields, record_layout
from headrace.store.store import Store
from headrace.tables.items.layout import SIZE, TIMES
from headrace.views.returns import sum_dtype
from headrace.views.stored.fused import LAST, THE_ROWS, FusedViews

_LINE = 64
_INTEGER, _FLOAT, _BYTE = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.uint8)
# The properties of an item that a batch reports.
_NUMBERS = {
    "keys": np.dtype(np.uint64),
    "probabilities": _FLOAT,
    "sizes": _INTEGER,
    "priorities": _FLOAT,
    "times": _INTEGER,
}


def fused_layout(store: Store, views: FusedViews, batch: int, length: int, *, has_axis: bool) -> FusedLayout:
    """Returns the layout of batches of `batch` items of `length` rows."""
    rows = batch * length
    leading = (batch, length) if has_axis else (batch,)
    # The rows themselves; where sums are, the last rows of their transitions and those after them; those of windows.
    windows, count = _windows(views, rows, 3 * rows if views.n_step else rows)
    offsets = [offset for window in views.windows for offset in window.offsets]
    into = _Fields()
    for name, dtype in _NUMBERS.items():
        into.add(name, dtype, (batch,))
    for part in views.sums.values():
        into.add(
            f"sum:{part}",
            _INTEGER if part == "n" else sum_dtype(store.signature.columns["reward"].dtype),
            leading,
        )
    shown = list(into.names)
    into.add("found", _INTEGER, (count,))
    into.add("known", _BYTE, (count,))
    table = _place_views(store, views, windows, into, leading)
    block, scratch = into.made(), _scratch(store, batch, rows if views.n_step else 0, count)
    return FusedLayout(
        batch=batch,
        length=length,
        has_axis=has_axis,
        has_wide=views.has_wide,
        block=block,
        scratch=scratch,
        windows=windows,
        offsets=np.array(offsets, np.int64),
        fields=table,
        moves=_moves(shown, block, scratch),
        row_moves=_moves(["found", "known"], block, scratch),
    )


class _Fields:
    """Collects the fields of a buffer."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._formats: list[Any] = []
        self._offsets: list[int] = []
        self._end = 0

    def add(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
        """Adds a field at the next cache line; returns its offset in bytes."""
        begin = -(-self._end // _LINE) * _LINE
        self.add_at(begin, name, dtype, shape)
        self._end = begin + prod(shape) * dtype.itemsize
        return begin

    def add_at(self, begin: int, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        """Adds a field that overlaps existing ones."""
        self.names.append(name)
        self._formats.append((dtype, shape))
        self._offsets.append(begin)

    def begin_of(self, name: str) -> int:
        """Returns the offset of a field in bytes."""
        return self._offsets[self.names.index(name)]

    def made(self) -> np.dtype[Any]:
        """Returns the structured dtype of all fields."""
        found: Any = {
            "names": self.names,
            "formats": self._formats,
            "offsets": self._offsets,
            "itemsize": self._end,
        }
        made: np.dtype[Any] = np.dtype(found)
        return made


def _windows(views: FusedViews, rows: int, place: int) -> tuple[NDArray[np.int64], int]:
    """Returns the table of windows whose row numbers begin at `place`, and the total number of row numbers."""
    table = np.zeros((len(views.windows), WINDOW_WORDS), np.int64)
    begin = 0
    for number, window in enumerate(views.windows):
        starts = 0 if window.next_of is None else 2 * rows
        looks_ahead = max(window.offsets) > 0
        table[number] = begin, len(window.offsets), window.is_post, place, starts, looks_ahead
        begin += len(window.offsets)
        place += rows * len(window.offsets)
    return table, place


def _place_views(
    store: Store, views: FusedViews, windows: NDArray[np.int64], into: _Fields, leading: tuple[int, ...]
) -> NDArray[np.int64]:
    """Returns the table for `copy_fields`; the field of a wide column's view holds row numbers."""
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
            into.add_at(into.begin_of("found") + 8 * begin, f"/{view.name}", _INTEGER, shape)
            continue
        table[line, ROWS], table[line, COUNT] = begin, rows * width
        table[line, TO] = into.add(f"/{view.name}", view.spec.dtype, shape + view.spec.shape)
        line += 1
    return by_rows(table)


def _scratch(store: Store, batch: int, summed: int, count: int) -> np.dtype[Any]:
    """Returns the scratch dtype for `batch` items with `summed` n-step transitions, and `count` row numbers."""
    into = _Fields()
    for name in ("keys", "probabilities", "priorities"):
        into.add(name, _NUMBERS[name], (batch,))
    integers = into.add("integers", _INTEGER, (4, batch))
    into.add_at(integers + 8 * batch * TIMES, "times", _INTEGER, (batch,))
    into.add_at(integers + 8 * batch * SIZE, "sizes", _INTEGER, (batch,))
    sums = into.add("sums", _FLOAT, (2 * summed,))
    dtype = sum_dtype(store.signature.columns["reward"].dtype) if summed else _FLOAT
    # The sums as 32-bit floats, if rewards are.
    singles = into.add("singles", np.dtype(np.float32), (2 * summed if dtype == np.float32 else 0,))
    shown = singles if dtype == np.float32 else sums
    into.add_at(shown, "sum:reward", dtype, (summed,))
    into.add_at(shown + dtype.itemsize * summed, "sum:discount", dtype, (summed,))
    into.add("sum:n", _INTEGER, (summed,))
    into.add("found", _INTEGER, (count,))
    into.add("known", _BYTE, (count,))
    return into.made()


def _moves(names: list[str], block: np.dtype[Any], scratch: np.dtype[Any]) -> NDArray[np.int64]:
    """Returns the destination, source and bytes of these fields."""
    places = [
        (_field(block, name)[1], _field(scratch, name)[1], _field(block, name)[0].itemsize) for name in names
    ]
    return np.array(places, np.int64).reshape(len(places), MOVE_WORDS)


def _field(block: np.dtype[Any], name: str) -> Any:
    assert block.fields is not None
    return block.fields[name]
