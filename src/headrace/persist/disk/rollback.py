"""Puts a store back to its durable point, after the machine has failed.

It may be interrupted and begun again: nothing here changes the point.
"""

from __future__ import annotations

import os

import numpy as np

from headrace.errors import CheckpointError
from headrace.persist.disk.checksums import pages_in_use
from headrace.persist.disk.durable_point import DurablePoint
from headrace.persist.disk.durable_ring import JOURNAL_WORDS
from headrace.persist.disk.generations import Generations
from headrace.store.layout import LINKED
from headrace.store.pages.pinning import Pins
from headrace.store.pages.ranges import flagged_rows, used_ranges
from headrace.store.pages.recovery import EMPTY_PAGE, PageRecovery
from headrace.store.store import Store
from headrace.tables.description.table import Table, kernel_selectors
from headrace.tables.item_memory import ItemMemory, new_items, shape_for
from headrace.tables.item_state import ItemState, arrays_by_name, fill_ring, finish_items
from headrace.tables.items.found_rows import remove_broken
from headrace.tables.items.items import Items
from headrace.tables.items.layout import FIRST


def restore_rows(store: Store, point: DurablePoint) -> Pins:
    """Restores the words of pages, and the changeable parts of the point's rows.

    Returns:
        The store's rows with pages that lead nowhere astray (`PageRecovery`), to follow them in.

    Raises:
        StoreFull: the disk is full.
    """
    arrays = store.arrays
    in_use = max(pages_in_use(store), int(point.pages.max(initial=-1)) + 1)
    _clear_versions_from(store, in_use)
    pages, words = point.pages[~point.is_lost], point.words[~point.is_lost]
    arrays.pages[:in_use] = EMPTY_PAGE
    arrays.pages[pages] = words
    linked = flagged_rows(arrays.steps, used_ranges(pages, words, arrays.page_rows), LINKED)
    last, final = point.links
    arrays.steps[linked[~np.isin(linked, last)]] &= ~np.uint32(LINKED)
    kept = np.isin(last // arrays.page_rows, pages) & np.isin(final // arrays.page_rows, pages)
    arrays.links[last[kept]] = final[kept] + 1
    arrays.links[final[kept]] = last[kept] + 1
    # The disk space of the pages may be lost, too.
    store.reserve_pages(in_use)
    return PageRecovery(arrays, in_use).pins


def _clear_versions_from(store: Store, page: int) -> None:
    """Versions of pages that were never used, as far as is known, are zeros."""
    offset, _, _ = store.index_layout.places["versions"]
    begin, end = offset + 4 * page * store.arrays.page_rows, offset + store.versions.nbytes
    while begin < end:
        try:
            begin = os.lseek(store.index.descriptor, begin, os.SEEK_DATA)
        except OSError:
            return
        hole = min(os.lseek(store.index.descriptor, begin, os.SEEK_HOLE), end)
        versions = store.versions[(begin - offset) // 4 : (hole - offset) // 4]
        # Only where there are some: a hole would be filled.
        versions[np.flatnonzero(versions)] = 0
        begin = max(hole, begin + 4096)


def restored_items(
    state: ItemState, table: Table, files: Generations, rows: Pins, *, has_lost: bool
) -> ItemMemory:
    """Restores the items of a table in the file of a new generation, which counts from here on.

    Args:
        state: of the point.
        table: description, whose selectors may be others than then.
        files: of the table.
        rows: from `restore_rows`.
        has_lost: whether pages were given up: their items had been removed, and stay away.

    Raises:
        CheckpointError: the rows of an item are not all there.
        StoreFull: the disk is full.
    """
    sampler, remover = kernel_selectors(table)
    names = set(state.arrays)
    shape = shape_for(
        sampler,
        remover,
        state.capacity,
        with_windows="windows" in names,
        with_priorities="priorities" in names,
    )
    memory = new_items(shape._replace(journal=JOURNAL_WORDS), sampler, remover, files.new)
    items, first = memory.arrays, int(state.ring[FIRST])
    for name, array in arrays_by_name(items).items():
        if name in names:
            fill_ring(array, first, state.arrays[name])
    finish_items(items, state, names)
    lost = remove_broken(Items(items, rows))
    if lost and not has_lost:
        raise CheckpointError(
            f"{files.path.parent}: expected the rows of all items of table {table.name!r}, as they were at the last "
            f"durable flush, got {lost} items without; the rows are damaged. Load a checkpoint that is whole"
        )
    files.turn()
    return memory
