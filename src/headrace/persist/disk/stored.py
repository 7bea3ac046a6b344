"""A store on disk, looked at: nothing in its folder is changed, and no table is needed to open it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError, Closed
from headrace.persist.disk.boot import boot_id
from headrace.persist.disk.checksums import hash_of_page, pages_in_use
from headrace.persist.disk.closed_store import HASHES, is_as_closed, read_closed, refuse_damage
from headrace.persist.disk.disk import HEADER, is_store, need_disk, read_store_manifest, stored_store
from headrace.persist.disk.durable_point import DURABLE
from headrace.persist.disk.generations import Generations
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.rows_file import INDEX, ROWS
from headrace.persist.recovery import recover
from headrace.spec import Signature
from headrace.store.layout import REFERENCES
from headrace.store.memory.arena import Arena
from headrace.system import lock
from headrace.tables.items.layout import LIVE

__all__ = ["StoredReplay", "is_store"]


class StoredReplay:
    """Rows and items of a store as the next opening would find them, whatever happened to its process.

    Its files are mapped copy on write. Recovery happens in memory.

    Args:
        folder: of the store.

    Raises:
        CheckpointError: the store is in use by a process, or damaged.
        Unsupported: on another system than Linux.

    Attributes:
        store: the rows.
        tables: the name of each table to the number of its items.
        final_columns: those that final rows are given.
        is_closed: whether this object is.
    """

    def __init__(self, folder: Path) -> None:
        need_disk(f"{folder}, a store on disk")
        manifest = read_store_manifest(folder)
        self.is_closed = False
        self._descriptor = _shared_lock(folder)
        try:
            self.signature = Signature.from_json(manifest.signature)
            self.store = stored_store(
                folder,
                manifest,
                self.signature,
                lambda nbytes: Arena.copy_on_write(folder / ROWS, nbytes),
                lambda nbytes: Arena.copy_on_write(folder / INDEX, nbytes),
            )
            self.lock = self.store.lock
            header = DiskHeader(
                folder / HEADER,
                tuple(self.signature.columns),
                len(manifest.tables),
                is_new=False,
                open_arena=Arena.copy_on_write,
            )
            self.final_columns = header.given
            files = {
                name: Generations(folder, header, number, Arena.copy_on_write)
                for number, name in enumerate(manifest.tables)
            }
            self._folder = folder
            self._check_state(folder, header, files)
            self.tables = self._mended(header, files)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _check_state(self, folder: Path, header: DiskHeader, files: Mapping[str, Generations]) -> None:
        """Refuses a store that is damaged, and one that opening would put back to its last durable flush."""
        closed = read_closed(folder)
        self.store.page_hashes = _hashes(folder, self.store.num_pages)
        # The same cases as in `Disk`, which goes back.
        may_go_back = header.boot != boot_id() and (folder / DURABLE).exists()
        if may_go_back and (closed is None or not is_as_closed(closed, self.store, header, files)):
            raise CheckpointError(
                f"{folder}: the machine failed, or was started anew, while the store was open; open it once with "
                "hr.Replay(signature, tables, path=folder), which puts it back to its last durable flush"
            )
        if closed is not None:
            refuse_damage(folder, closed, self.store, header, files)

    def _mended(self, header: DiskHeader, files: Mapping[str, Generations]) -> dict[str, int]:
        """Recovers the pages that the items of all tables hold; returns the number of items of each table."""
        found = {
            name: each.described(each.found(header.next_key), header.next_key) for name, each in files.items()
        }
        recover(self.store, pages_in_use(self.store), list(found.values()))
        return {name: int(each.items.ring[LIVE]) for name, each in found.items()}

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _shared_lock(folder: Path) -> int:
    """Returns a descriptor whose lock keeps an owner out and lets others look."""
    try:
        descriptor = os.open(folder / ROWS, os.O_RDONLY)
    except OSError as error:
        raise CheckpointError(
            f"{folder / ROWS}: expected the rows of a store, got {error.strerror}"
        ) from error
    if not lock(descriptor, shared=True):
        os.close(descriptor)
        raise CheckpointError(
            f"{folder}: the store is in use by another process, or by this one; close it there first"
        )
    return descriptor


def _hashes(folder: Path, num_pages: int) -> NDArray[np.uint64]:
    """The hashes of pages; zeros, which stand for none, where the file is another one."""
    path, nbytes = folder / HASHES, 8 * num_pages
    if not path.is_file() or path.stat().st_size != nbytes:
        return np.zeros(num_pages, np.uint64)
    arena = Arena.copy_on_write(path, nbytes)
    return arena.array(0, (num_pages,), np.uint64)  # type: ignore[return-value]
