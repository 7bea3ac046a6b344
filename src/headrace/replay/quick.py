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
from headrace.replay.packing import BatchLayout
from headrace.store.copying import copy_fields, words
from headrace.store.gather import Pool, rows_of_one_length
from headrace.store.jit import Float, Int, kernel, kernel_apart, prefetch
from headrace.store.layout import StoreArrays
from headrace.store.memory import open_store
from headrace.store.records import COUNT, ROWS, TO, fields, record_layout
from headrace.store.store import Store
from headrace.store.window import resolve
from headrace.views.quick import LAST, THE_ROWS, QuickViews
from headrace.views.transition import add_up

LARGEST = 1 << 18
"""Bytes of a batch that is copied under the lock: some tens of microseconds."""

_LINE = 64
_BYTE = np.dtype(np.uint8)
# The numbers of an item as they stand at the beginning of a batch's stretch of memory, `[B]` each.
_NUMBERS = ("keys", "slots", "times", "sizes", "rows", "probabilities", "priorities")

# The words of `sizes`: items and their rows; where row numbers and what is known begin in the stretch, in bytes; how
# many transitions are summed up, where their columns stand in a record and the sums in the stretch; the numbers, among
# the row numbers, where the last and the following rows of those transitions begin.
BATCH, LENGTH, FOUND, KNOWN_AT = range(4)
N_STEP, REWARD, REWARD_NBYTES, TERMINATED, RETURNS, DISCOUNTS, COUNTS, LAST_ROWS, FOLLOWING = range(4, 13)
SIZES = 13

# The columns of `windows`.
BEGIN, OFFSETS, ACTING_GIVES, PLACE, STARTS = range(5)


class Quick(NamedTuple):
    """How batches of one size of one table are made.

    Attributes:
        nbytes: of the stretch that takes a batch.
        block: its fields, by number for data and by name for the numbers of the items.
        sizes: int64[SIZES].
        windows: int64[W, 5]: BEGIN and number of OFFSETS in `offsets`, ACTING_GIVES, PLACE of its first row number, and
            that of the first row from which it looks, STARTS.
        offsets: int64[...], of all windows.
        table: for `copy_fields`.
    """

    nbytes: int
    block: np.dtype[Any]
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
    sizes = np.zeros(SIZES, np.int64)
    # The rows themselves, then those of sums, then those of windows.
    sizes[BATCH], sizes[LENGTH], sizes[LAST_ROWS], sizes[FOLLOWING] = batch, length, rows, 2 * rows
    windows, count = _windows(views, rows, 3 * rows if views.n_step else rows)
    fields_of = _Fields(8 * batch * len(_NUMBERS))
    for name, dtype in zip(_NUMBERS, [np.uint64, *[np.int64] * 4, *[np.float64] * 2], strict=True):
        fields_of.add_at(8 * batch * len(fields_of.names), name, np.dtype(dtype), (batch,))
    sizes[FOUND] = fields_of.end
    sizes[KNOWN_AT] = fields_of.end + 8 * count
    fields_of.end += 9 * count
    layout = record_layout(store.signature)
    if views.n_step:
        _place_sums(store, views, sizes, fields_of, leading)
    table = fields(layout, [(view.column, view.spec.nbytes) for view in views.views])
    for line, view in enumerate(views.views):
        width = int(windows[view.window, OFFSETS]) if view.window >= 0 else 1
        begin = {THE_ROWS: 0, LAST: rows}.get(view.window)
        table[line, ROWS] = windows[view.window, PLACE] if begin is None else begin
        table[line, COUNT] = rows * width
        shape = leading + ((width,) if view.has_window else ()) + view.spec.shape
        table[line, TO] = fields_of.add(f"/{view.name}", view.spec.dtype, shape)
    offsets = np.array([offset for window in views.windows for offset in window.offsets], np.int64)
    return Quick(fields_of.end, fields_of.block(), sizes, windows, offsets, table)


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
    table = np.zeros((len(views.windows), 5), np.int64)
    begin = 0
    for number, window in enumerate(views.windows):
        starts = 0 if window.next_of is None else 2 * rows
        table[number] = begin, len(window.offsets), window.acting_gives, place, starts
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
    sizes[RETURNS] = into.add("/reward", reward, leading)
    sizes[DISCOUNTS] = into.add("/discount", reward, leading)
    sizes[COUNTS] = into.add("/n", np.dtype(np.int64), leading)


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
    gamma: Float,
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
    if sizes[N_STEP]:
        missing += _sum_up(store, sizes, gamma, records, record_nbytes, found, out)
    for window in range(windows.shape[0]):
        begin, count, place = windows[window, BEGIN], windows[window, OFFSETS], windows[window, PLACE]
        stop = place + count * rows.shape[0]
        missing += resolve(
            store,
            found[windows[window, STARTS] : windows[window, STARTS] + rows.shape[0]],
            offsets[begin : begin + count],
            windows[window, ACTING_GIVES] != 0,
            found[place:stop].reshape((rows.shape[0], count)),
            known[place:stop].reshape((rows.shape[0], count)),
        )
    copy_fields(records, record_nbytes, found, table, out)
    return drawn, missing


@kernel_apart
def _sum_up(
    store: StoreArrays,
    sizes: NDArray[np.int64],
    gamma: Float,
    records: NDArray[np.uint8],
    record_nbytes: Int,
    found: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> Int:
    """`transition.add_up` with the columns in the records and the sums in the stretch."""
    count = sizes[BATCH] * sizes[LENGTH]
    rows = found[:count]
    last = found[sizes[LAST_ROWS] : sizes[LAST_ROWS] + count]
    following = found[sizes[FOLLOWING] : sizes[FOLLOWING] + count]
    counts = out[sizes[COUNTS] : sizes[COUNTS] + 8 * count].view(np.int64)
    terminated = records[sizes[TERMINATED] :: record_nbytes]
    n_step, width = sizes[N_STEP], sizes[REWARD_NBYTES]
    for index in range(count):
        prefetch(store.steps, rows[index])
        prefetch(records, rows[index] * record_nbytes)
    returns = out[sizes[RETURNS] : sizes[RETURNS] + width * count]
    discounts = out[sizes[DISCOUNTS] : sizes[DISCOUNTS] + width * count]
    if width == 4:
        rewards4 = words(records, 4).view(np.float32)[sizes[REWARD] // 4 :: record_nbytes // 4]
        returns4, discounts4 = returns.view(np.float32), discounts.view(np.float32)
        return add_up(
            store, rows, rewards4, terminated, n_step, gamma, returns4, discounts4, counts, last, following
        )
    rewards8 = words(records, 8).view(np.float64)[sizes[REWARD] // 8 :: record_nbytes // 8]
    returns8, discounts8 = returns.view(np.float64), discounts.view(np.float64)
    return add_up(
        store, rows, rewards8, terminated, n_step, gamma, returns8, discounts8, counts, last, following
    )


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
        self.batch = batch
        self._layout = BatchLayout(length if sequences else None)
        layout = record_layout(store.signature)
        self._store = (store.memory, store.places, store.arrays.page_rows)
        made = self._quick
        self._how = (
            made.sizes,
            made.windows,
            made.offsets,
            views.gamma,
            store.records,
            layout.nbytes,
            made.table,
        )
        self._names = [(name, f"/{views.sums.get(name, name)}") for name in views.names]

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
            uniforms = random.random(self.batch - drawn) if draws else _NOTHING
            drawn, missing = sample(*self._store, *carve, drawn, uniforms, *self._how, out)  # type: ignore[call-arg]
            if drawn == self.batch:
                return out, missing

    def present(self, out: NDArray[np.uint8], missing: int) -> SampledBatch:
        """The stretch as a batch."""
        block: NDArray[Any] = np.ndarray((), self._quick.block, out)
        data = {name: block[field] for name, field in self._names}
        if missing:
            self._fill(out, data)
        info = SampleInfo(
            block["keys"], block["probabilities"], block["sizes"], block["priorities"], block["times"]
        )
        return SampledBatch(data, info, None, self._layout)

    def _fill(self, out: NDArray[np.uint8], data: dict[str, NDArray[Any]]) -> None:
        sizes = self._quick.sizes
        known = out[int(sizes[KNOWN_AT]) :]
        found = out[int(sizes[FOUND]) : int(sizes[KNOWN_AT])].view(np.int64)
        for view in self._views.views:
            values = data[view.name]
            shape = values.shape[: values.ndim - len(view.spec.shape)]
            if view.window == LAST:
                unfit = found[int(sizes[LAST_ROWS]) : int(sizes[FOLLOWING])] < 0
                values[unfit.reshape(shape)] = view.fill
            elif view.window >= 0:
                place = int(self._quick.windows[view.window, PLACE])
                values[(known[place : place + prod(shape)] <= view.covers).reshape(shape)] = view.fill


_NOTHING = np.zeros(0, np.float64)
