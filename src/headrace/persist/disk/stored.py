"""A view of a store on disk, which changes nothing in its folder and needs no tables."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.closing import Closing
from headrace.errors import CheckpointError, Closed
from headrace.persist.disk.checksums import hash_of_page, pages_in_use
from headrace.persist.disk.closed_store import HASHES
from headrace.persist.disk.durable_point import DURABLE
from headrace.persist.disk.folder import lock_to_read, need_disk
from headrace.persist.disk.manifest import is_store, map_store, read_store_manifest, signature_of
from headrace.persist.disk.rows_file import INDEX, ROWS
from headrace.persist.disk.skipped_keys import read_skipped
from headrace.persist.disk.store_files import StoreFiles
from headrace.persist.recovery import recover
from headrace.store.layout import REFERENCES
from headrace.store.memory.arena import Arena
from headrace.tables.distribution import slots_of
from headrace.tables.items.layout import LIVE, ItemArrays

__all__ = ["StoredReplay", "is_store"]


class StoredReplay(Closing):
    """Rows and items of a store as the next opening would find them, after any end of its process.

    Its files are mapped copy on write. Recovery happens in memory.

    Args:
        folder: of the store.

    Raises:
        CheckpointError: the store is in use by a process, or damaged.
        Unsupported: on another system than Linux.

    Attributes:
        store: the rows.
        tables: the name of each table to the number of its items.
        items: the name of each table to its items.
        next_key, skipped_keys: above the keys of all items, and the keys that no item was given.
        final_columns: those that final rows are given.
        is_closed: whether this object is.
    """

    def __init__(self, folder: Path) -> None:
        need_disk(f"{folder}, a store on disk")
        manifest = read_store_manifest(folder)
        self.is_closed = False
        self._folder = folder
        self._descriptor = lock_to_read(folder)
        try:
            self.signature = signature_of(folder, manifest)
            self.store = map_store(
                folder,
                manifest,
                self.signature,
                lambda nbytes: Arena.copy_on_write(folder / ROWS, nbytes),
                lambda nbytes: Arena.copy_on_write(folder / INDEX, nbytes),
            )
            self.lock = self.store.lock
            self.store.page_hashes = _hashes(folder, self.store.num_pages)
            files = StoreFiles(
                folder, self.store, manifest.tables, is_new=False, open_arena=Arena.copy_on_write
            )
            self.final_columns = files.header.given
            self.skipped_keys = read_skipped(folder)
            self._check_state(files)
            self.items = self._recovered(files)
            self.tables = {name: int(arrays.ring[LIVE]) for name, arrays in self.items.items()}
            newest = max(
                (int(items.keys[slots_of(items)].max(initial=0)) for items in self.items.values()), default=0
            )
            # The first key of a store of 0.1.0 that was killed may lie far ahead.
            self.next_key = files.header.key_after_kill(newest) if files.header.key_now[0] else newest + 1
        except BaseException:
            os.close(self._descriptor)
            raise

    def _check_state(self, files: StoreFiles) -> None:
        """Refuses a damaged store, and a store that opening would put back to its last durable flush."""
        has_point = (self._folder / DURABLE).exists()
        if has_point and files.may_have_lost(has_point=True):
            raise CheckpointError(
                f"{self._folder}: the machine failed, or was restarted, while the store was open; open it once with "
                "hr.Replay(signature, tables, path=folder), which puts it back to its last durable flush"
            )
        files.refuse_damage()

    def _recovered(self, files: StoreFiles) -> dict[str, ItemArrays]:
        """Recovers the pages that the items of all tables hold; returns the items of each table."""
        memories = {name: files.found(name) for name in files.items}
        recover(self.store, pages_in_use(self.store), files.described(memories))
        return {name: memory.arrays for name, memory in memories.items()}

    def verify_rows(self) -> tuple[int, int]:
        """Compares each page of rows that items hold with its hash, made by the first orderly close after it was taken.

        Returns:
            The number of pages that were compared, and of those without a hash: they were taken since that close.

        Raises:
            CheckpointError: a page differs.
        """
        store = self.store
        self.check_open()
        assert store.page_hashes is not None
        held = store.arrays.pages[: pages_in_use(store), REFERENCES] > 0
        hashes = store.page_hashes[: len(held)]
        for page in np.flatnonzero(held & (hashes != 0)).tolist():
            if hash_of_page(store, page) != int(hashes[page]):
                first = page * store.arrays.page_rows
                last = first + store.arrays.page_rows - 1
                raise CheckpointError(
                    f"{self._folder / ROWS} or {self._folder / INDEX}: expected rows {first} to {last} (page {page}) "
                    "as they were when the store was closed, got others; the file is damaged. Load a checkpoint that "
                    "is whole"
                )
        return int((held & (hashes != 0)).sum()), int((held & (hashes == 0)).sum())

    def check_open(self) -> None:
        """Refuses a closed object.

        Raises:
            Closed: it is closed.
        """
        if self.is_closed:
            raise Closed("the store was closed; open it again")

    def close(self) -> None:
        """Gives the folder free; closing twice does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.store.close()
            os.close(self._descriptor)


def _hashes(folder: Path, num_pages: int) -> NDArray[np.uint64]:
    """Returns the hashes of pages; zeros, which stand for none, if the file has another size."""
    path, nbytes = folder / HASHES, 8 * num_pages
    if not path.is_file() or path.stat().st_size != nbytes:
        return np.zeros(num_pages, np.uint64)
    arena = Arena.copy_on_write(path, nbytes)
    return arena.array(0, (num_pages,), np.uint64)  # type: ignore[return-value]
