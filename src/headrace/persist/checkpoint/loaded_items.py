"""Items of a checkpoint, read into the arrays that their table will use."""

from __future__ import annotations

import math

import numpy as np

from headrace.persist.checkpoint.manifest import MANIFEST, TableEntry
from headrace.persist.checkpoint.reading import CheckpointFiles, nbytes_of
from headrace.persist.recovery import FoundItems
from headrace.store.layout import MAX_ROWS
from headrace.tables.custom_ring import for_kernels
from headrace.tables.description.table import Table
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_state import (
    LAST_UPDATES,
    PER_ITEM,
    RECORDS,
    arrays_by_name,
    empty_memory,
    finish_items,
    segments,
)
from headrace.tables.items.layout import (
    FIRST,
    RECORD_ROW,
    RECORD_TIMES,
    RECORD_WORDS,
    RING_WORDS,
    RING_WORDS_OF_0_1,
    SPAN,
    WINDOW_WORDS,
)
from headrace.tables.table_state import COUNTS, TableState

_PER_ITEM_SHAPES = {RECORDS: (RECORD_WORDS,), "windows": (WINDOW_WORDS,)}


def request_table(files: CheckpointFiles, entry: TableEntry, table: Table) -> TableState[ItemMemory]:
    """Returns a table, into whose arrays the items of a checkpoint are read.

    Args:
        files: of the checkpoint.
        entry: of the table.
        table: its description, whose settings may differ from those that were saved.

    Raises:
        ValueError: the entry contradicts itself or the file.
    """
    if set(entry.counts) != set(COUNTS) or min(entry.counts.values()) < 0:
        raise ValueError(f"table {table.name!r}: expected the counts {', '.join(COUNTS)}, got {entry.counts}")
    _check_ring(entry)
    record = files.checked_record(entry.file)
    names = _names_in(files, entry)
    if not {RECORDS} <= names <= set(PER_ITEM) or len(names) != len(record.arrays):
        raise ValueError(f"{entry.file}: expected the arrays of items, got {', '.join(names)}")
    memory = empty_memory(entry.capacity, names, for_kernels(table.sampler), for_kernels(table.remover))
    arrays, reader = arrays_by_name(memory.arrays), files.reader(record)
    first, span = entry.ring[FIRST], entry.ring[SPAN]
    for saved in record.arrays:
        wanted = (span, *_PER_ITEM_SHAPES.get(saved.name, ()))
        if saved.shape != wanted:
            raise ValueError(f"{entry.file}: {saved.name}: expected the shape {wanted}, got {saved.shape}")
        # Arrays that the present selectors ignore are read too, to verify their checksums.
        array = arrays.get(saved.name)
        whole, begin = (np.empty(wanted, saved.dtype), 0) if array is None else (array, first)
        for part in segments(whole, begin, span):
            reader.read_into(part)
    return TableState(table, dict(entry.counts), memory)


def _check_ring(entry: TableEntry) -> None:
    has_words = len(entry.ring) in (RING_WORDS, RING_WORDS_OF_0_1)
    if not has_words or not 1 <= entry.capacity <= MAX_ROWS or entry.scratch < 1:
        raise ValueError(f"table {entry.table.name!r}: expected the words of a ring, got {entry.ring}")
    first, span = entry.ring[FIRST], entry.ring[SPAN]
    if not (0 <= first < entry.capacity and 0 <= span <= entry.capacity):
        raise ValueError(
            f"table {entry.table.name!r}: expected slots below {entry.capacity}, got {first}, {span}"
        )


def complete_items(
    files: CheckpointFiles, entry: TableEntry, saved: Table, state: TableState[ItemMemory], next_key: int
) -> FoundItems:
    """Completes items that were read, and describes them for `recover`.

    Args:
        files, entry: see `request_table`.
        saved: the table with its settings when it was saved.
        state: from `request_table`.
        next_key: above every key that was used.
    """
    items = state.items.arrays
    finish_items(items, entry.state({}), _names_in(files, entry))
    counts = (entry.counts["inserts"], entry.counts["samples"], entry.counts["deletes"])
    return FoundItems(
        items,
        counts,
        saved.max_times_sampled,
        next_key,
        lambda name, slot: _place_of(files, entry, name, slot),
    )


def _place_of(files: CheckpointFiles, entry: TableEntry, name: str, slot: int) -> str:
    """Returns the file with an item's entry in this array, and the byte where it begins."""
    within = {"keys": 0, "rows": 4 * RECORD_ROW, "times": 4 * RECORD_TIMES}
    saved_as = {"last_updates": LAST_UPDATES}
    offset = within.get(name, 0)
    for array in files.arrays_in(entry.file):
        if array.name == (RECORDS if name in within else saved_as.get(name, name)):
            in_ring = (slot - entry.ring[FIRST]) % entry.capacity
            per_item = math.prod(array.shape[1:]) * np.dtype(array.dtype).itemsize
            return f"{files.folder / entry.file}, byte {offset + in_ring * per_item} ({name})"
        offset += nbytes_of(array)
    return f"{files.folder / MANIFEST}, table {entry.table.name!r}, {name}"


def _names_in(files: CheckpointFiles, entry: TableEntry) -> set[str]:
    return {array.name for array in files.arrays_in(entry.file)}
