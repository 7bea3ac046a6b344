"""Checksums of a store on disk that was closed orderly: the data that they cover, and their comparison.

An orderly close hashes the header, the words of pages, the data of each table's items that are not derived, and the
pages of rows that were taken since they were hashed last. Opening compares all but the rows, which `verifying` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from headrace.persist.disk.header import DiskHeader
from headrace.persist.whole_file import bytes_of
from headrace.store.layout import FINAL, LANES, NO_LINK, STARTS, USED, versions_in
from headrace.store.store import Store
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_state import arrays_by_name, segments
from headrace.tables.items.layout import (
    ACTIVE,
    FIRST,
    LARGEST_PRIORITY,
    PRIORITY_OF_ALL,
    REMOVER_KIND,
    RING_WORDS,
    SAMPLER_KIND,
    SPAN,
)


class Checksums(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The checksums of a closed store.

    Attributes:
        header: of the header.
        pages: of the words of all pages that were ever used.
        page_hashes: of the file of the hashes of pages of rows.
        tables: of the items of each table, by its name.
    """

    header: str
    pages: str
    page_hashes: str
    tables: dict[str, str]


def checksums_of(store: Store, header: DiskHeader, tables: Mapping[str, ItemMemory | None]) -> Checksums:
    """Returns the checksums of the files now; that of a table whose file cannot be read is empty."""
    in_use = pages_in_use(store)
    assert store.page_hashes is not None
    return Checksums(
        _digest(header.content()),
        _digest([store.arrays.pages[:in_use]]),
        _digest([store.page_hashes[:in_use]]),
        {name: "" if memory is None else _digest(_kept(memory)) for name, memory in tables.items()},
    )


def pages_in_use(store: Store) -> int:
    """Returns the number of pages that were ever taken, by their words in the file."""
    return pages_told_by(store.arrays.pages)


def pages_told_by(words: NDArray[np.int64]) -> int:
    """Returns the number of pages before the first that was never taken; `words` are int64[pages, PAGE_WORDS]."""
    used = np.flatnonzero(words.any(axis=1))
    return int(used[-1]) + 1 if len(used) else 0


def _kept(memory: ItemMemory) -> list[NDArray[np.generic]]:
    """Returns the arrays of items that are neither derived nor rewritten at an opening."""
    items = memory.arrays
    first, span = items.ring[[FIRST, SPAN]].tolist()
    # Files of 0.1.0 have no largest priority; below 1 it is replaced at an opening.
    has_largest = items.ring.view(np.float64)[LARGEST_PRIORITY] > 1.0
    left_out = [SAMPLER_KIND, REMOVER_KIND, *([] if has_largest else [LARGEST_PRIORITY])]
    words = np.setdiff1d(np.arange(RING_WORDS), left_out)
    parts = [part for array in arrays_by_name(items).values() for part in segments(array, first, span)]
    common = items.common[[PRIORITY_OF_ALL]], items.common_window
    return [*parts, items.ring[words], *common, items.journal[[ACTIVE]]]


def _digest(arrays: Iterable[NDArray[np.generic]]) -> str:
    digest = xxhash.xxh3_128()
    for array in arrays:
        digest.update(bytes_of(array))
    return digest.hexdigest()


def hash_of_page(store: Store, page: int) -> int:
    """Returns the hash of the rows of a page and their metadata, never 0, without links to other pages.

    Links change when another page is freed. They are checked as structure: each must lead back.
    """
    words, arrays = store.arrays.pages[page], store.arrays
    first = page * arrays.page_rows
    stop = first + int(words[USED] * words[LANES])
    steps = arrays.steps[first:stop]
    digest = xxhash.xxh3_64()
    digest.update(bytes_of(steps))
    for array in store.row_arrays.values():
        digest.update(bytes_of(array[first:stop]))
    for by_page in (arrays.start_rows, arrays.start_ids):
        digest.update(bytes_of(by_page[first : first + int(words[STARTS])]))
    if (versions := int(versions_in(words[None])[0])) > 0:
        digest.update(bytes_of(store.versions[first : first + versions]))
    finals = first + np.flatnonzero(steps & np.uint32(FINAL))
    digest.update(bytes_of(arrays.links[finals] == NO_LINK))
    return digest.intdigest() or 1
