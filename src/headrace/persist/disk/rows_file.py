"""The sizes of the files of rows and of the index: whole while a store is open, cut to the used part afterwards.

The words of pages, which stand at the beginning of the index, tell the used part. So the sizes need no record: when
a close is interrupted before a cut, or an opening after a file has grown again, both sizes of each file are right.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.errors import CheckpointError
from headrace.persist.disk.checksums import pages_in_use, pages_told_by
from headrace.store.layout import PAGE_WORDS, page_spans
from headrace.store.memory.arena import Arena
from headrace.store.memory.arena_layout import ArenaLayout
from headrace.store.store import Store

ROWS, INDEX = "rows", "index"


def open_grown(descriptor: int, nbytes: int) -> Arena:
    """Maps a file that has its whole size from here on.

    Args:
        descriptor: of the file; the arena owns it from here on.
        nbytes: the whole size.
    """
    try:
        if os.fstat(descriptor).st_size < nbytes:
            os.ftruncate(descriptor, nbytes)
            # Before any page is taken: after the machine failed a short file with other pages would look damaged.
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return Arena.on_disk(descriptor, nbytes)


def check_sizes(folder: Path, num_pages: int, index: ArenaLayout, rows: ArenaLayout) -> None:
    """Refuses files that are neither whole nor cut where an orderly close cuts them.

    Args:
        folder, num_pages: of the store.
        index, rows: the layouts of its arenas.

    Raises:
        CheckpointError: a file is missing or has another size.
    """
    pages = _pages_used(folder / INDEX, num_pages)
    for path, layout in ((folder / INDEX, index), (folder / ROWS, rows)):
        size = path.stat().st_size
        used = None if pages is None else _used_nbytes(layout, num_pages, pages)
        if size not in (layout.nbytes, used):
            expected = f"{layout.nbytes} bytes"
            if used is not None:
                expected += f", or {used} as an orderly close leaves it"
            raise CheckpointError(
                f"{path}: expected {expected}, got {size}; the file is damaged. Load a checkpoint that is whole"
            )


def _pages_used(path: Path, num_pages: int) -> int | None:
    """Reads from an index how many pages were ever taken; None if it ends before."""
    try:
        words = np.fromfile(path, np.int64, PAGE_WORDS * num_pages)
    except OSError as error:
        raise CheckpointError(f"{path}: expected the index of a store, got {error.strerror}") from error
    return (
        pages_told_by(words.reshape(num_pages, PAGE_WORDS)) if len(words) == PAGE_WORDS * num_pages else None
    )


def cut(store: Store) -> None:
    """Cuts the files of a store off after the last page that was ever taken, where the file system allows.

    The last change of an orderly close: nothing is stored from here on. Rows that are still read lie before the cut.
    """
    pages = pages_in_use(store)
    for arena, layout in ((store.arena, store.layout), (store.index, store.index_layout)):
        with suppress(OSError):
            arena.truncate(_used_nbytes(layout, store.num_pages, pages))


def _used_nbytes(layout: ArenaLayout, num_pages: int, pages: int) -> int:
    return int(page_spans(layout, num_pages, 0, pages)[:, 1].max())
