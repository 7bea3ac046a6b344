"""A batch in one call: draw, find the rows, copy them.

For items that stay when they are sampled and views of small columns: the usual batch of a few hundred transitions. It
takes the lock once and copies under it: that is over in less time than a guard for readers takes to open and close.
tests/replay/test_quick.py compares it with the general way.
"""

from __future__ import annotations

from math import prod
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.replay.batch import SampledBatch, SampleInfo
from headrace.replay.drawing import draw
from headrace.replay.item_memory import open_items
from headrace.replay.items import (
    HAS_SEQUENCES,
    INVENTED,
    LOOKAHEAD,
    PRIORITIZED,
    REAL,
    STREAM,
    UNIFORM,
    Items,
)
from headrace.replay.packing import BatchLayout
from headrace.store.copying import copy_fields, words
from headrace.store.gather import Pool, rows_of_one_length
from headrace.store.jit import Bool, Float, Int, kernel, kernel_apart, next_double, prefetch
from headrace.store.layout import StoreArrays
from headrace.store.memory import open_records, open_store
from headrace.store.records import COUNT, FIELD_WORDS, ROWS, TO, fields, record_layout
from headrace.store.store import Store
from headrace.store.window import resolve
from headrace.views.quick import LAST, THE_ROWS, QuickViews
from headrace.views.transition import add_up

LARGEST = 1 << 18
"""Bytes of a batch that is copied under the lock: some tens of microseconds."""

_LINE = 64
# The numbers of an item as they stand at the beginning of a batch's stretch of memory, `[B]` each.
_NUMBERS = ("keys", "slots", "times", "sizes", "rows", "probabilities", "priorities")

# The words of `sizes`: items and their rows; where row numbers and what is known begin in the stretch, in bytes; how
# many transitions are summed up, where their columns stand in a record and the sums in the stretch; the numbers, among
# the row numbers, where the last and the following rows of those transitions begin.
BATCH, LENGTH, FOUND, KNOWN_AT = range(4)
N_STEP, REWARD, REWARD_NBYTES, TERMINATED, RETURNS, DISCOUNTS, COUNTS, LAST_ROWS, FOLLOWING = range(4, 13)
HAS_AXIS = 13  # whether columns are presented as `[B, L, ...]`, and not `[B, ...]`
WINDOWS = 14  # how many windows there are
OFFSETS_AT, TABLE_AT = 15, 16  # where what follows the windows begins in the numbers
SIZES = 17

# What the kernel returns where it has drawn nothing.
OTHER_WINDOWS, PAGES_FREED = -1, -2

# The columns of `windows`.
BEGIN, OFFSETS, ACTING_GIVES, PLACE, STARTS = range(5)


class Quick(NamedTuple):
    """How batches of one size of one table are made.

    Attributes:
        nbytes: of the stretch that takes a batch.
        block: its fields, by number for data and by name for the numbers of the items.
        numbers: int64[...], for the kernel, in one array: `sizes`, `windows`, the offsets of all windows, and the table
            for `copy_fields`.
        sizes: int64[SIZES].
        windows: int64[W, 5]: BEGIN and number of OFFSETS among the offsets, ACTING_GIVES, PLACE of its first row
            number, and that of the first row from which it looks, STARTS.
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
    function: Int,
    state: Int,
    gamma: Float,
    record_nbytes: Int,
    numbers: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> Int:
    """Draw the items, find their rows and copy them.

    Args:
        function, state: of the random numbers (`jit.next_double`).
        numbers: see `Quick`.

    Returns:
        At how many places nothing is known; or, with nothing drawn: OTHER_WINDOWS, if the items have others than
        `numbers` says; PAGES_FREED, if windows might still lead into pages that were given back.
    """
    sizes = numbers[:SIZES]
    items = open_items(item_memory, item_places)
    store = open_store(memory, places, page_rows)
    if store.freed[-1]:
        return PAGES_FREED
    if not _fits(items, sizes):
        return OTHER_WINDOWS
    batch, length = sizes[BATCH], sizes[LENGTH]
    windows = numbers[SIZES : sizes[OFFSETS_AT]].reshape((sizes[WINDOWS], 5))
    offsets = numbers[sizes[OFFSETS_AT] : sizes[TABLE_AT]]
    table = numbers[sizes[TABLE_AT] :].reshape(
        ((numbers.shape[0] - sizes[TABLE_AT]) // FIELD_WORDS, FIELD_WORDS)
    )
    _draw(items, function, state, batch, out)
    records = open_records(memory, places)
    found = out[sizes[FOUND] : sizes[KNOWN_AT]].view(np.int64)
    known = out[sizes[KNOWN_AT] : sizes[KNOWN_AT] + found.shape[0]]
    rows = found[: batch * length]
    first_rows = out[32 * batch : 40 * batch].view(np.int64)
    rows_of_one_length(store, first_rows, length, rows)
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
    return missing


@kernel
def _fits(items: Items, sizes: NDArray[np.int64]) -> Bool:
    """Whether all items have as many rows, and are presented, as `sizes` says."""
    window = items.common_window
    return (
        items.windows.shape[0] == 0
        and np.int64(window[REAL]) == sizes[LENGTH]
        and window[INVENTED] == 0
        and window[LOOKAHEAD] != STREAM
        and items.ring[HAS_SEQUENCES] == sizes[HAS_AXIS]
    )


@kernel
def _draw(items: Items, function: Int, state: Int, batch: Int, out: NDArray[np.uint8]) -> None:
    """Draw all items; what is known of them stands at the beginning of the stretch, as `_NUMBERS` says."""
    keys = out[: 8 * batch].view(np.uint64)
    integers = out[8 * batch : 40 * batch].view(np.int64).reshape((4, batch))
    floats = out[40 * batch : 56 * batch].view(np.float64).reshape((2, batch))
    kind = items.sampler.kind
    drawn = 0
    while drawn < batch:
        # Where the keys come to stand afterwards.
        uniforms = out[8 * drawn : 8 * batch].view(np.float64)
        if kind in (UNIFORM, PRIORITIZED):
            for place in range(uniforms.shape[0]):
                uniforms[place] = next_double(function, state)
        drawn = draw(items, drawn, uniforms, keys, integers, floats)


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

    Attributes:
        batch, length, sequences: as above.
    """

    def __init__(
        self, store: Store, pool: Pool, views: QuickViews, batch: int, length: int, *, sequences: bool
    ) -> None:
        self.batch, self.length, self.sequences = batch, length, sequences
        self._views = views
        self._pool = pool
        self._quick = quick(store, views, batch, length, sequences=sequences)
        self._layout = BatchLayout(length if sequences else None)
        self._store = store
        self._carve = (store.memory, store.places, store.arrays.page_rows)
        self._how: tuple[Any, ...] = (views.gamma, record_layout(store.signature).nbytes, self._quick.numbers)
        self._names = views.names
        # All of a batch's arrays at once, the numbers of its items first.
        shown = [f"/{views.sums.get(name, name)}" for name in views.names]
        self._arrays = itemgetter("keys", "probabilities", "sizes", "priorities", "times", *shown)

    @property
    def is_small(self) -> bool:
        """Whether such a batch may be copied under the lock."""
        return self._quick.nbytes <= LARGEST

    def sample(
        self, carve: tuple[Any, Any], numbers: tuple[int, int]
    ) -> tuple[NDArray[np.uint8], int] | None:
        """A batch's stretch of memory, and at how many places nothing is known. The lock must be held.

        Args:
            carve: the memory of the items and its places.
            numbers: the random ones (`jit.next_double`).

        Returns:
            None if the items have other windows, and nothing is drawn.
        """
        if self._store.has_dropped:
            self._store.reclaim()
        out = self._pool.stretch(self._quick.nbytes)
        missing = sample(*self._carve, *carve, *numbers, *self._how, out)  # type: ignore[call-arg]
        if missing == PAGES_FREED:
            self._store.reclaim()
            missing = sample(*self._carve, *carve, *numbers, *self._how, out)  # type: ignore[call-arg]
        return None if missing < 0 else (out, missing)

    def present(self, out: NDArray[np.uint8], missing: int) -> SampledBatch:
        """The stretch as a batch."""
        block: NDArray[Any] = np.ndarray((), self._quick.block, out)
        keys, probabilities, sizes, priorities, times, *shown = self._arrays(block)
        data = dict(zip(self._names, shown, strict=True))
        if missing:
            self._fill(out, data)
        info = SampleInfo(keys, probabilities, sizes, priorities, times)
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
