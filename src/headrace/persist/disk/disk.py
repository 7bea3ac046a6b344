"""A store on disk: the files of a replay in one folder, owned by one process (`folder.py` lists them).

A kill of the process is handled in `durable_ring.py`, a failure of the machine in `durable_point.py`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import CheckpointError, Closed
from headrace.persist.checked_json import read_checked_json, write_checked_json
from headrace.persist.disk.checksums import pages_in_use
from headrace.persist.disk.closed_store import HASHES, forget_hashes, open_hashes, write_closed
from headrace.persist.disk.durable_point import DURABLE, RELEASED, DurablePoint, DurablePoints
from headrace.persist.disk.durable_ring import DurableRing
from headrace.persist.disk.folder import PADDINGS, lock_to_write, need_disk, remove_own_files
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.manifest import (
    MANIFEST,
    StoreManifest,
    expect_manifest,
    map_store,
    read_store_manifest,
    write_store_manifest,
)
from headrace.persist.disk.rollback import restore_rows, restored_items
from headrace.persist.disk.rows_file import INDEX, ROWS, cut, open_grown
from headrace.persist.disk.skipped_keys import SKIPPED
from headrace.persist.disk.store_files import HEADER, StoreFiles
from headrace.persist.disk.writer_counts import WRITERS, WriterCounts
from headrace.persist.generator import generator_record, generator_state
from headrace.persist.recovery import recover
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.system import sync_folder, unlock
from headrace.tables.description.table import Table
from headrace.tables.item_memory import ItemMemory
from headrace.tables.items.layout import DELETES, IGNORED_DELETES, IGNORED_UPDATES, INSERTS, SAMPLES, UPDATES

_LOGGER = logging.getLogger(__name__)

_PADDINGS_FORMAT, _PADDINGS_VERSION = "headrace paddings", 1
# Keys that are skipped after a failure of the machine: more than any store uses between two flushes.
_UNKNOWN_KEYS = 1 << 40

_COUNT_WORDS = {
    "inserts": INSERTS,
    "samples": SAMPLES,
    "deletes": DELETES,
    "updates": UPDATES,
    "ignored_updates": IGNORED_UPDATES,
    "ignored_deletes": IGNORED_DELETES,
}


class _PaddingsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paddings: dict[str, dict[str, object]]


class Disk:
    """The folder of a store, opened.

    Args:
        path: of the folder; a store is made where there is none.
        signature: of one step.
        tables: names, in their order.
        capacity: of a new store; None: that of the store in the folder.

    Raises:
        CheckpointError: another process uses it; it holds something else; it is damaged.
        Unsupported: on another system than Linux.

    Attributes:
        store: the rows; `open_rings` recovers its pages.
        header: counters that never go back.
        syncing: held while the store is made durable or closed; taken before the lock of the store.
    """

    def __init__(
        self, path: str | os.PathLike[str], signature: Signature, tables: Sequence[str], capacity: int | None
    ) -> None:
        need_disk("path")
        signature.to_json()  # A signature that cannot be written is refused before anything is made.
        self.folder = Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = lock_to_write(self.folder)
        try:
            manifest = self._manifest_of(descriptor, signature, tables, capacity)
            self.store = self._open_store(descriptor, manifest, signature, capacity)
        except BaseException:
            # A mapping that a traceback still holds would keep the lock.
            unlock(descriptor)
            raise
        finally:
            # The arena has a descriptor of its own; all of them share the lock.
            os.close(descriptor)
        self.syncing = threading.RLock()
        self._is_new = manifest is None
        self._writers: WriterCounts | None = None
        self._names = tuple(tables) if manifest is None else manifest.tables
        self._points = DurablePoints(self.folder, self.store)
        try:
            self._files = StoreFiles(self.folder, self.store, self._names, is_new=self._is_new)
            self.header = self._files.header
            self._hashes = open_hashes(self.folder, self.store)
            self._point = None if self._is_new else self._point_to_return_to()
            self.store.next_episode = self.header.next_episode
        except BaseException:
            self.abandon()
            raise

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _manifest_of(
        self, descriptor: int, signature: Signature, tables: Sequence[str], capacity: int | None
    ) -> StoreManifest | None:
        """Returns the manifest of the store in the folder, which is as expected; None for a new store."""
        if (self.folder / MANIFEST).exists():
            manifest = read_store_manifest(self.folder)
            expect_manifest(self.folder, manifest, signature, tables, capacity)
            return manifest
        if DiskHeader.is_begun(self.folder / HEADER):
            raise CheckpointError(
                f"{self.folder / MANIFEST}: expected the manifest of the store that is here; the file is missing"
            )
        remove_own_files(self.folder, keep={ROWS})
        os.ftruncate(descriptor, 0)
        return None

    def _open_store(
        self, descriptor: int, manifest: StoreManifest | None, signature: Signature, capacity: int | None
    ) -> Store:
        index = self.folder / INDEX
        if manifest is None:
            return Store(
                signature,
                capacity,
                make_arena=lambda nbytes: Arena.on_disk(os.dup(descriptor), nbytes),
                make_index=lambda nbytes: Arena.file(index, nbytes),
            )
        return map_store(
            self.folder,
            manifest,
            signature,
            lambda nbytes: open_grown(os.dup(descriptor), nbytes),
            lambda nbytes: open_grown(os.open(index, os.O_RDWR), nbytes),
        )

    def note_paddings(self, paddings: dict[str, dict[str, object]]) -> None:
        """Writes the values of padded rows."""
        write_checked_json(
            self.folder / PADDINGS, _PaddingsRecord(paddings), _PADDINGS_FORMAT, _PADDINGS_VERSION
        )

    def read_paddings(self) -> dict[str, dict[str, object]]:
        """Returns the paddings written last.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / PADDINGS
        if not path.exists():
            return {}
        return read_checked_json(path, _PaddingsRecord, _PADDINGS_FORMAT, _PADDINGS_VERSION).paddings

    def _point_to_return_to(self) -> DurablePoint | None:
        """Returns the durable point if the machine may have failed since; its counters become the header's.

        Raises:
            CheckpointError: the point is damaged.
        """
        point = self._points.found()
        if point is not None:
            self._points.begin(point.pages[~point.is_lost])
        if not self._files.may_have_lost(has_point=point is not None):
            return None
        forget_hashes(self.store)
        # The header may lack the latest keys.
        self.header.key_now[0] = self.header.next_key
        if point is None:
            return None
        self._files.closed = None
        _LOGGER.warning(
            "%s: the machine failed, or was restarted, while the store was open. It is as it was at its last "
            "durable flush; later changes are lost",
            self.folder,
        )
        header = self.header
        header.next_key = max(header.next_key, point.next_key) + _UNKNOWN_KEYS
        header.key_now[0] = header.next_key
        header.next_episode[0] = max(int(header.next_episode[0]), point.next_episode)
        header.given = point.given
        return point

    # ---- tables ----------------------------------------------------------------------------------------------------

    def open_rings(self, tables: Sequence[Table], random: np.random.Generator) -> list[DurableRing]:
        """Recovers the items of these tables, and the pages that they hold.

        Raises:
            CheckpointError: something does not fit, with the file and the byte.
        """
        found = {} if self._is_new else self._found_items(tables)
        self._rings = {
            table.name: DurableRing(
                self.store, table, random, self._files.items[table.name], found.get(table.name)
            )
            for table in tables
        }
        if not self._is_new:
            memories = {name: ring.memory for name, ring in self._rings.items()}
            recover(self.store, pages_in_use(self.store), self._files.described(memories))
            self._note_next_key()
            if (self.folder / WRITERS).exists():
                self._recover_writers(self.writers())
        return list(self._rings.values())

    def _note_next_key(self) -> None:
        newest = max(int(ring.all_keys().max(initial=0)) for ring in self._rings.values())
        self.header.key_now[0] = self.header.key_after_kill(newest)

    def _recover_writers(self, writers: WriterCounts) -> None:
        if self._point is not None:
            writers.restore(self._point.writers)
        writers.complete([int(ring.arrays.ring[INSERTS]) for ring in self._rings.values()])

    def writers(self) -> WriterCounts:
        """Returns the counts of clients' writers; their file is made when it is first asked for.

        The store's lock must be held.

        Raises:
            CheckpointError: the file is damaged.
            StoreFull: the disk is full.
        """
        if self._writers is None:
            writers = WriterCounts(self.folder / WRITERS, self._names)
            for number, ring in enumerate(self._rings.values()):
                ring.count_writers(writers, number)
            self._writers = writers
        return self._writers

    def _found_items(self, tables: Sequence[Table]) -> dict[str, ItemMemory]:
        point, files = self._point, self._files
        if point is not None:
            rows, has_lost = restore_rows(self.store, point), bool(point.is_lost.any())
            return {
                table.name: restored_items(
                    point.tables[table.name], table, files.items[table.name], rows, has_lost=has_lost
                )
                for table in tables
            }
        if files.closed is not None:
            files.refuse_damage()
            self.header.opened = files.closed.token
        return {table.name: files.found(table.name) for table in tables}

    def begin(self, random: np.random.Generator) -> None:
        """Marks the store as in use, after everything was found right."""
        closed = self._files.closed
        current = {files.path.name for files in self._files.items.values()}
        if self._is_new:
            write_store_manifest(self.folder, self.store, self._names)
        elif closed is not None:
            random.bit_generator.state = generator_state(closed.generator)
        self.header.begin()
        self._files.note_boot()
        # Without the record of its close the store counts as killed.
        remove_own_files(
            self.folder,
            keep={
                MANIFEST,
                ROWS,
                INDEX,
                HEADER,
                PADDINGS,
                SKIPPED,
                HASHES,
                DURABLE,
                RELEASED,
                WRITERS,
                *current,
            },
        )
        if closed is not None:
            # The record must not come back after a failure of the machine: its items are gone.
            sync_folder(self.folder)
        # Its arrays lie in the file of a point that a later one replaces.
        self._point = None

    def counts_of(self, ring: DurableRing) -> dict[str, int]:
        """Returns the counts of a table."""
        return {name: int(ring.arrays.ring[word]) for name, word in _COUNT_WORDS.items()}

    # ---- syncing and closing ---------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Makes a durable point of the changes so far.

        Raises:
            Closed: the store is closed.
            StoreFull: the disk is full.
            OSError: the point could not be written; the last one stays.
        """
        with self.syncing:
            if self.store.is_closed:
                raise Closed("the replay is closed")
            self._points.begin()
            buffers = {name: ring.buffers_for_copy() for name, ring in self._rings.items()}
            with self.store.lock:
                point = self._points.take(self._rings, buffers, self.header, self._writers)
            for arena in (self.store.arena, self.store.index, self.header.arena):
                arena.sync()
            self._points.write(point)
            with self.store.lock:
                self.store.retain_only(point.pages)

    def close(self, random: np.random.Generator, next_key: int) -> None:
        """Writes the record for the next opening, and releases the folder.

        A store that was ever made durable is made durable once more. `syncing` and the store's lock must be held.
        """
        try:
            self.header.next_key = next_key
            if self._points.is_begun:
                self.sync()
            tables = {name: ring.memory for name, ring in self._rings.items()}
            generator = generator_record(random.bit_generator.state)
            write_closed(self.folder, self.store, self.header, tables, generator)
            cut(self.store)
        finally:
            self.abandon()

    def after_fork_in_child(self) -> None:
        """Leaves the folder to the parent: nothing is written to it from here on."""
        self.header.arena.make_private()
        if self._writers is not None:
            self._writers.arena.make_private()
        # Another thread may have held it.
        self.syncing = threading.RLock()

    def abandon(self) -> None:
        """Releases the folder as it is; a second call completes a first that Ctrl-C interrupted."""
        with self.syncing:
            self._points.close()
            try:
                if not self.store.is_closed:
                    # Before the lock is released: threads that copy rows check this afterwards.
                    self.store.is_closed = True
                    # A writer that is overtaken may be writing a row: from here on that reaches no file.
                    self.store.make_private()
            finally:
                self.store.close()
