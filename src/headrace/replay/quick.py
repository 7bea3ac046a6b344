"""A batch in one call: draw, find the rows, copy them.

For items that stay when they are sampled and views of small columns: the usual batch of a few hundred transitions. It
takes the lock once and copies under it: that is over in less time than a guard for readers takes to open and close.
tests/replay/test_quick.py compares it with the general way.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.batch import SampledBatch, SampleInfo
from headrace.replay.item_memory import open_items
from headrace.replay.kernels import draw
from headrace.store.copying import copy_fields
from headrace.store.gather import Pool, rows_of_one_length
from headrace.store.jit import Int, kernel
from headrace.store.memory import open_store
from headrace.store.records import COUNT, ROWS, TO, fields, record_layout
from headrace.store.store import Store
from headrace.store.window import resolve
from headrace.views.quick import QuickViews

LARGEST = 1 << 18
"""Bytes of a batch that is copied under the lock: some tens of microseconds."""

_LINE = 64
_BYTE = np.dtype(np.uint8)
# The numbers of an item as they stand at the beginning of a batch's stretch of memory, `[B]` each.
_NUMBERS = ("keys", "slots", "times", "sizes", "rows", "probabilities", "priorities")

# The words of `places`: where things begin in the stretch, in bytes.
BATCH, LENGTH, FOUND, KNOWN_AT = range(4)

# The columns of `windows`.
BEGIN, OFFSETS, ACTING_GIVES, PLACE = range(4)


class Quick(NamedTuple):
    """How batches of one size of one table are made.

    Attributes:
        nbytes: of the stretch that takes a batch.
        block: its fields, by number for data and by name for the numbers of the items.
        names: of the views, each with the name of its field.
        sizes: int64[4]: BATCH items of LENGTH rows; FOUND, KNOWN_AT: where row numbers and what is known begin.
        windows: int64[W, 4]: BEGIN and number of OFFSETS in `offsets`, ACTING_GIVES, PLACE of its first row number.
        offsets: int64[...], of all windows.
        table: for `copy_fields`.
    """

    nbytes: int
    block: np.dtype[Any]
    names: list[tuple[str, str]]
    sizes: NDArray[np.int64]
    windows: NDArray[np.int64]
    offsets: NDArray[np.int64]
    table: NDArray[np.int64]


def quick(store: Store, views: QuickViews, batch: int, length: int, *, sequences: bool) -> Quick:
    """Lay out the stretch for batches of `batch` items of `length` rows.

    Args:
        sequences: whether columns are presented as `[B, L, ...]`, and not `[B, ...]`.
    """
    rows = batch * length
    leading = (batch, length) if sequences else (batch,)
    windows = np.zeros((len(views.windows), 4), np.int64)
    place = rows
    begin = 0
    for number, window in enumerate(views.windows):
        windows[number] = begin, len(window.offsets), window.acting_gives, place
        begin += len(window.offsets)
        place += rows * len(window.offsets)
    offsets = np.array([offset for window in views.windows for offset in window.offsets], np.int64)
    found = 8 * batch * len(_NUMBERS)
    known = found + 8 * place
    end = -(-(known + place) // _LINE) * _LINE
    layout = record_layout(store.signature)
    table = fields(layout, [(view.column, view.spec.nbytes) for view in views.views])
    formats: list[Any] = [(np.uint64, (batch,))] + [(np.int64, (batch,))] * 4 + [(np.float64, (batch,))] * 2
    starts = [8 * batch * number for number in range(len(_NUMBERS))]
    for line, view in enumerate(views.views):
        width = 1 if view.window < 0 else int(windows[view.window, OFFSETS])
        table[line, ROWS] = 0 if view.window < 0 else windows[view.window, PLACE]
        table[line, COUNT], table[line, TO] = rows * width, end
        formats.append((view.spec.dtype, leading + ((width,) if view.has_window else ()) + view.spec.shape))
        starts.append(end)
        end += -(-rows * width * view.spec.nbytes // _LINE) * _LINE
    names = [*_NUMBERS, *(f"{number}" for number in range(len(views.views)))]
    block = np.dtype({"names": names, "formats": formats, "offsets": starts, "itemsize": end})
    fields_of_views = [(view.name, f"{number}") for number, view in enumerate(views.views)]
    sizes = np.array([batch, length, found, known], np.int64)
    return Quick(end, block, fields_of_views, sizes, windows, offsets, table)


@kernel
def sample(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    item_memory: NDArray[np.uint8],
    item_places: NDArray[np.int64],
    start: Int,
    uniforms: NDArray[np.float64],
    sizes: NDArray[np.int64],
    windows: NDArray[np.int64],
    offsets: NDArray[np.int64],
    records: NDArray[np.uint8],
    record_nbytes: Int,
    table: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> tuple[Int, Int]:
    """Draw the items from `start` on; once all are drawn, find their rows and copy them.

    Returns:
        How many are drawn, and at how many places nothing is known.
    """
    batch, length = sizes[BATCH], sizes[LENGTH]
    keys = out[: 8 * batch].view(np.uint64)
    integers = out[8 * batch : 40 * batch].view(np.int64).reshape((4, batch))
    floats = out[40 * batch : 56 * batch].view(np.float64).reshape((2, batch))
    drawn = draw(open_items(item_memory, item_places), start, uniforms, keys, integers, floats)
    if drawn < batch:
        return drawn, 0
    store = open_store(memory, places, page_rows)
    found = out[sizes[FOUND] : sizes[KNOWN_AT]].view(np.int64)
    known = out[sizes[KNOWN_AT] : sizes[KNOWN_AT] + found.shape[0]]
    rows = found[: batch * length]
    rows_of_one_length(store, integers[3], length, rows)
    missing = 0
    for window in range(windows.shape[0]):
        begin, count, place = windows[window, BEGIN], windows[window, OFFSETS], windows[window, PLACE]
        stop = place + count * rows.shape[0]
        missing += resolve(
            store,
            rows,
            offsets[begin : begin + count],
            windows[window, ACTING_GIVES] != 0,
            found[place:stop].reshape((rows.shape[0], count)),
            known[place:stop].reshape((rows.shape[0], count)),
        )
    copy_fields(records, record_nbytes, found, table, out)
    return drawn, missing


class QuickBatches:
    """Batches of one size of a table, each made by one call of `sample`.

    Args:
        store: of the steps.
        pool: of the stretches.
        views: what is shown.
        batch, length: items of so many rows.
        sequences: whether there is an axis for them.
    """

    def __init__(
        self, store: Store, pool: Pool, views: QuickViews, batch: int, length: int, *, sequences: bool
    ) -> None:
        self._views = views
        self._pool = pool
        self._quick = quick(store, views, batch, length, sequences=sequences)
        self._batch = batch
        layout = record_layout(store.signature)
        self._store = (store.memory, store.places, store.arrays.page_rows)
        self._how = (self._quick.sizes, self._quick.windows, self._quick.offsets, store.records, layout.nbytes)

    @property
    def nbytes(self) -> int:
        """Of the stretch that takes a batch."""
        return self._quick.nbytes

    def sample(self, carve: Any, random: np.random.Generator, draws: bool) -> tuple[NDArray[np.uint8], int]:
        """A batch's stretch of memory, and at how many places nothing is known. The lock must be held."""
        quick = self._quick
        out = self._pool.empty((quick.nbytes,), _BYTE)
        drawn = 0
        while True:
            uniforms = random.random(self._batch - drawn) if draws else _NOTHING
            drawn, missing = sample(*self._store, *carve, drawn, uniforms, *self._how, quick.table, out)
            if drawn == self._batch:
                return out, missing

    def present(self, out: NDArray[np.uint8], missing: int) -> SampledBatch:
        """The stretch as a batch."""
        block: NDArray[Any] = np.ndarray((), self._quick.block, out)
        data = {name: block[field] for name, field in self._quick.names}
        if missing:
            self._fill(out, data)
        info = SampleInfo(
            block["keys"], block["probabilities"], block["sizes"], block["priorities"], block["times"]
        )
        return SampledBatch(data, info, None)

    def _fill(self, out: NDArray[np.uint8], data: dict[str, NDArray[Any]]) -> None:
        known = out[int(self._quick.sizes[KNOWN_AT]) :]
        for view in self._views.views:
            if view.window < 0:
                continue
            values, place = data[view.name], int(self._quick.windows[view.window, PLACE])
            shape = values.shape[: values.ndim - len(view.spec.shape)]
            count = prod(shape)
            values[(known[place : place + count] <= view.covers).reshape(shape)] = view.fill


_NOTHING = np.zeros(0, np.float64)
