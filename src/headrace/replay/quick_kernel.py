"""The kernel of a batch in one call (`replay.quick`), and what its table of numbers means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.drawing import draw
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
from headrace.replay.table_handles import count_sampled, open_items_of, open_memory_of, open_store_of
from headrace.store.copying import copy_fields, words
from headrace.store.gather import rows_of_one_length
from headrace.store.intrinsics import next_double
from headrace.store.jit import Bool, Float, Int, kernel, kernel_apart
from headrace.store.layout import StoreArrays
from headrace.store.memory import open_records
from headrace.store.records import FIELD_WORDS
from headrace.store.window import resolve
from headrace.views.transition import add_up

# The numbers of an item as they stand at the beginning of a batch's stretch of memory, `[B]` each.
NUMBERS = ("keys", "slots", "times", "sizes", "rows", "probabilities", "priorities")

# The words of `sizes`: items and their rows; where row numbers and what is known begin in the stretch, in bytes; how
# many transitions are summed up, where their columns stand in a record and the sums in the stretch; the numbers, among
# the row numbers, where the last and the following rows of those transitions begin.
BATCH, LENGTH, FOUND, KNOWN_AT = range(4)
N_STEP, REWARD, REWARD_NBYTES, TERMINATED, RETURNS, DISCOUNTS, COUNTS, LAST_ROWS, FOLLOWING = range(4, 13)
HAS_AXIS = 13  # whether columns are presented as `[B, L, ...]`, and not `[B, ...]`
WINDOWS = 14  # how many windows there are
OFFSETS_AT, TABLE_AT = 15, 16  # where what follows the windows begins in the numbers
COPIED = 17  # how many of the row numbers, the first ones, are those of records that are copied
SIZES = 18

# What the kernel returns where it has drawn nothing.
OTHER_WINDOWS, PAGES_FREED = -1, -2

# The columns of `windows`.
BEGIN, OFFSETS, ACTING_GIVES, PLACE, STARTS, LOOKS_AHEAD = range(6)
WINDOW_COLUMNS = 6

AHEAD_SHIFT = 32
"""What `sample` returns has, from this bit on, at how many of the places nothing is known of what comes after a row."""


@kernel
def sample(
    table: NDArray[np.int64],
    function: Int,
    state: Int,
    gamma: Float,
    record_nbytes: Int,
    numbers: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> Int:
    """Draw the items, find their rows and copy the records.

    Args:
        table: handles of the table (`table_handles`).
        function, state: of the random numbers (`intrinsics.next_double`).
        numbers: see `quick_layout.Quick`.

    Returns:
        At how many places nothing is known, and at how many of them (AHEAD_SHIFT) of what comes after a row; or, with
        nothing drawn: OTHER_WINDOWS, if the items have others than `numbers` says; PAGES_FREED, if windows might still
        lead into pages that were given back.
    """
    sizes = numbers[:SIZES]
    items, store = open_items_of(table), open_store_of(table)
    if store.freed[-1]:
        return PAGES_FREED
    if not _fits(items, sizes):
        return OTHER_WINDOWS
    batch, length = sizes[BATCH], sizes[LENGTH]
    windows = numbers[SIZES : sizes[OFFSETS_AT]].reshape((sizes[WINDOWS], WINDOW_COLUMNS))
    offsets = numbers[sizes[OFFSETS_AT] : sizes[TABLE_AT]]
    fields = numbers[sizes[TABLE_AT] :].reshape(
        ((numbers.shape[0] - sizes[TABLE_AT]) // FIELD_WORDS, FIELD_WORDS)
    )
    _draw(items, function, state, batch, out)
    count_sampled(table, batch)
    memory, places = open_memory_of(table)
    records = open_records(memory, places)
    found = out[sizes[FOUND] : sizes[KNOWN_AT]].view(np.int64)
    known = out[sizes[KNOWN_AT] : sizes[KNOWN_AT] + found.shape[0]]
    rows = found[: batch * length]
    first_rows = out[32 * batch : 40 * batch].view(np.int64)
    rows_of_one_length(store, first_rows, length, rows)
    missing = ahead = 0
    if sizes[N_STEP]:
        missing = ahead = _sum_up(store, sizes, gamma, records, record_nbytes, found, out)
    for window in range(windows.shape[0]):
        begin, count, place = windows[window, BEGIN], windows[window, OFFSETS], windows[window, PLACE]
        stop = place + count * rows.shape[0]
        absent = resolve(
            store,
            found[windows[window, STARTS] : windows[window, STARTS] + rows.shape[0]],
            offsets[begin : begin + count],
            windows[window, ACTING_GIVES] != 0,
            found[place:stop].reshape((rows.shape[0], count)),
            known[place:stop].reshape((rows.shape[0], count)),
        )
        missing += absent
        ahead += absent * windows[window, LOOKS_AHEAD]
    copy_fields(records, record_nbytes, found[: sizes[COPIED]], fields, out)
    return missing + (ahead << AHEAD_SHIFT)


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
    """Draw all items; what is known of them stands at the beginning of the stretch, as `NUMBERS` says."""
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
