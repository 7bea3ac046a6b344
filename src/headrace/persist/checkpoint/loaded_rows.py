"""Rows of a checkpoint, read into the store of the replay that is made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.persist.checkpoint.files import record_of_array
from headrace.persist.checkpoint.manifest import FileRecord, Manifest
from headrace.persist.checkpoint.reading import CheckpointFiles
from headrace.spec import Signature
from headrace.store.layout import (
    LANES,
    MAX_ROWS,
    ORPHAN,
    PAGE_WORDS,
    SPARE_PAGES,
    STARTS,
    USED,
    reserved_pages,
    versions_in,
)
from headrace.store.memory.arena import Arena
from headrace.store.pages.ranges import used_ranges
from headrace.store.store import Store


def new_store(manifest: Manifest, words: NDArray[np.int64], make_arena: Callable[[int], Arena]) -> Store:
    """Returns an empty store with space for these pages.

    Args:
        manifest: of the checkpoint.
        words: int64[pages, PAGE_WORDS], of its pages.
        make_arena: where the store lives.

    Raises:
        ValueError: these are not words of pages.
    """
    signature = Signature.from_json(manifest.signature)
    _check_words(words, manifest.page_rows)
    reserved = reserved_pages(manifest.capacity, signature.nbytes, manifest.page_rows)
    # A checkpoint may have more pages than this machine would reserve.
    num_pages = max(reserved, len(words) + SPARE_PAGES)
    return Store(
        signature,
        manifest.capacity,
        make_arena=make_arena,
        make_index=make_arena,
        page_rows=manifest.page_rows,
        num_pages=num_pages,
    )


def request_rows(files: CheckpointFiles, store: Store, words: NDArray[np.int64]) -> str:
    """Requests the words and values of all rows; returns the name of the file of the words."""
    ranges = used_ranges(np.arange(len(words)), words, store.arrays.page_rows)
    arrays = {"steps": store.arrays.steps, **store.row_arrays}
    records = files.by_first_array()
    for name, array in arrays.items():
        _request_values(files, records[name], array, ranges)
    store.arrays.pages[: len(words)] = words
    return records["steps"].name


def _request_values(
    files: CheckpointFiles, record: FileRecord, array: NDArray[Any], ranges: NDArray[np.int64]
) -> None:
    total = int((ranges[:, 1] - ranges[:, 0]).sum())
    if record.arrays != (record_of_array(record.arrays[0].name, array, total),):
        raise ValueError(f"expected {total} rows of {array.dtype.str} {array.shape[1:]}, got {record.arrays}")
    reader = files.reader(record)
    for start, stop in ranges.tolist():
        reader.read_into(array[start:stop])


def fill_metadata(store: Store, index: Mapping[str, NDArray[Any]]) -> None:
    """Fills in episodes, versions, and links to final rows, from the arrays of the index.

    Raises:
        ValueError: an array has another length than the pages say, or a link leads to no row.
    """
    arrays, words, page_rows = store.arrays, index["pages"], store.arrays.page_rows
    firsts = np.arange(len(words)) * page_rows
    for name, counts, target in (
        ("start_rows", words[:, STARTS], arrays.start_rows),
        ("start_ids", words[:, STARTS], arrays.start_ids),
        ("versions", versions_in(words), store.versions),
    ):
        values, total = index[name], int(counts.sum())
        if values.shape != (total,):
            raise ValueError(f"{name}: expected {total} entries, as the pages say, got {values.shape}")
        done = 0
        for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
            target[first : first + count] = values[done : done + count]
            done += count
    last, final = index["links"]
    for rows in (last, final, index["orphans"]):
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(words) * page_rows:
            raise ValueError(f"expected rows below {len(words) * page_rows}, got {rows.max()}")
    arrays.links[last] = final + 1
    arrays.links[final] = last + 1
    arrays.links[index["orphans"]] = ORPHAN


def _check_words(words: NDArray[np.int64], page_rows: int) -> None:
    if words.ndim != 2 or words.shape[1] != PAGE_WORDS or not 1 <= page_rows <= MAX_ROWS:
        raise ValueError(f"expected {PAGE_WORDS} words for each page of {page_rows} rows, got {words.shape}")
    lanes, used, starts = words[:, LANES], words[:, USED], words[:, STARTS]
    good = (lanes >= 1) & (used >= 1) & (used * lanes <= page_rows) & (starts >= 0) & (starts <= page_rows)
    if not good.all():
        raise ValueError(
            f"page {int(np.argmin(good))}: expected words of a page, got {words[np.argmin(good)]}"
        )
