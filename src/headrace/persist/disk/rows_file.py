"""The size of the file of rows: all that is reserved while a store is open, and what was used once it is closed.

The words of pages, which stand at its beginning, tell how much was used. So the size needs no record: when a close is
interrupted before the cut, or an opening after the file has grown again, both sizes are right.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.errors import CheckpointError
from headrace.persist.disk.checksums import pages_in_use, pages_told_by
from headrace.store.arena import Arena, ArenaLayout
from headrace.store.layout import PAGE_WORDS, written_spans
from headrace.store.store import Store

ROWS = "rows"


def open_rows(path: Path, descriptor: int, layout: ArenaLayout) -> Arena:
    """Maps the rows of a store, in a file that has its whole size from here on.

    Args:
        path: of the file.
        descriptor: of the file; the arena owns it from here on.
        layout: of the store.

    Raises:
        CheckpointError: the file has another size than a store leaves.
    """
    try:
        check_size(path, layout)
        if os.fstat(descriptor).st_size < layout.nbytes:
            os.ftruncate(descriptor, layout.nbytes)
            # Before any page is taken: after the machine failed a short file with other pages would look damaged.
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return Arena.on_disk(descriptor, layout.nbytes)


def check_size(path: Path, layout: ArenaLayout) -> None:
    """Refuses a file of rows that is neither whole nor cut where an orderly close cuts it.

    Raises:
        CheckpointError: it has another size.
    """
    size = path.stat().st_size
    if size == layout.nbytes:
        return
    begin, (num_pages, _), dtype = layout.places["pages"]
    expected = f"{layout.nbytes} bytes"
    if size >= begin + 8 * PAGE_WORDS * num_pages:
        words = np.fromfile(path, dtype, PAGE_WORDS * num_pages, offset=begin).reshape(num_pages, PAGE_WORDS)
        used = _used_nbytes(layout, pages_told_by(words))
        if size == used:
            return
        expected += f", or {used} as an orderly close leaves it"
    raise CheckpointError(
        f"{path}: expected {expected}, got {size}; the file is damaged. Load a checkpoint that is whole"
    )


def cut(store: Store) -> None:
    """Cuts the file of a store off after the last page that was ever taken, where the file system allows.

    The last change of an orderly close: nothing is stored from here on. Rows that are still read lie before the cut.
    """
    with suppress(OSError):
        store.arena.truncate(_used_nbytes(store.layout, pages_in_use(store)))


def _used_nbytes(layout: ArenaLayout, pages: int) -> int:
    return int(written_spans(layout, pages)[:, 1].max())
