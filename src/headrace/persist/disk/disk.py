"""A store on disk: the files of a replay in one folder, owned by one process.

    manifest.json     what is stored: signature, sizes, names of tables. Written last: without it there is no store
    rows              the values of rows, mapped. It is locked by its owner, and by the workers that write in it
    index             the page table and all else that tells about rows, mapped by the owner alone. Both files are
                      sparse; an orderly close cuts them (`rows_file.py`)
    header            counters that must never go back, and which generation of items counts; mapped
    items-T-G         the items of table T, generation G; mapped
    hashes            the hash of each page of rows that was not taken since; mapped
    closed.json       after an orderly close: the random generator, where counters stand exactly, checksums
    durable           the last durable point, once there is one; `released` beside it (`durable_point.py`)

A kill of the process is handled in `durable_ring.py`, a failure of the machine in `durable_point.py`.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import CheckpointError, Closed
from headrace.persist.checked_json import has_head, read_checked_json, write_checked_json
from headrace.persist.disk.boot import boot_id
from headrace.persist.disk.checksums import pages_in_use
from headrace.persist.disk.closed_store import (
    CLOSED,
    HASHES,
    forget_hashes,
    is_as_closed,
    open_hashes,
    read_closed,
    refuse_damage,
    write_closed,
)
from headrace.persist.disk.durable_point import DURABLE, RELEASED, DurablePoint, DurablePoints
from headrace.persist.disk.durable_ring import DurableRing
from headrace.persist.disk.generations import Generations
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.rollback import restore_rows, restored_items
from headrace.persist.disk.rows_file import INDEX, ROWS, check_sizes, cut, open_grown
from headrace.persist.generator import generator_record, generator_state
from headrace.persist.recovery import recover
from headrace.spec import Signature
from headrace.store.layout import plan_index, plan_rows
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.system import lock, need_linux, sync_folder, unlock
from headrace.tables.description.table import Table
from headrace.tables.item_memory import ItemMemory
from headrace.tables.items.layout import DELETES, IGNORED_DELETES, IGNORED_UPDATES, INSERTS, SAMPLES, UPDATES

_LOGGER = logging.getLogger(__name__)

HEADER = "header"
_MANIFEST = "manifest.json"
_PADDINGS = "paddings.json"
# Version 2 keeps what tells about rows in a file of its own.
_STORE_FORMAT, _VERSION = "headrace store", 2
_PADDINGS_VERSION = 1
_PADDINGS_FORMAT = "headrace paddings"
# Files that are written beside those they replace.
_REPLACED = (_MANIFEST, _PADDINGS, CLOSED, DURABLE)
_OWN_FILES = (
    ROWS,
    INDEX,
    HEADER,
    HASHES,
    RELEASED,
    *(f"{name}.partial" for name in _REPLACED),
    *_REPLACED[1:],
)
# Keys are skipped where some may have been used that are not known of: more than any store uses between two flushes.
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


class StoreManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a store, and their layout in the files."""

    signature: dict[str, object]
    capacity: int | None
    page_rows: int
    num_pages: int
    arrays: tuple[tuple[str, int], ...]
    tables: tuple[str, ...]


class Disk:
    """The folder of a store, opened.

    Args:
        path: of the folder; a store is made where there is none.
        signature: of one step.
        tables: names, in their order.
        capacity: of a new store; None takes what a store that is there has.

    Raises:
        CheckpointError: another process uses it; it holds something else; it is damaged.
        Unsupported: on another system than Linux.

    Attributes:
        store: the rows; pages are as they were found until `open_rings` has mended them.
        header: counters that never go back.
        syncing: held while the store is made durable or closed; taken before the lock of the store.
    """

    def __init__(
        self, path: str | os.PathLike[str], signature: Signature, tables: Sequence[str], capacity: int | None
    ) -> None:
        need_disk("path")
        signature.to_json()  # One that cannot be written down is refused before anything is made.
        self.folder = Path(path)
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = self._lock()
        try:
            self._manifest = self._read_manifest()
            if self._manifest is None:
                self._refuse_lost_manifest()
                self._remove(keep={ROWS})
                os.ftruncate(descriptor, 0)
            else:
                self._compare(self._manifest, signature, tables, capacity)
                capacity = self._manifest.capacity
            self.store = self._open_store(descriptor, signature, capacity)
        except BaseException:
            # A mapping that somebody's traceback still holds would keep the lock.
            unlock(descriptor)
            raise
        finally:
            # The arena has a descriptor of its own; the lock is shared by all of them.
            os.close(descriptor)
        self.syncing = threading.RLock()
        self._points = DurablePoints(self.folder, self.store)
        try:
            self._names = self._manifest.tables if self._manifest is not None else tuple(tables)
            self._closed = read_closed(self.folder)
            columns = tuple(signature.columns)
            is_new = self._manifest is None
            self.header = DiskHeader(self.folder / HEADER, columns, len(self._names), is_new=is_new)
            self._hashes = open_hashes(self.folder, self.store)
            self._files = {
                name: Generations(self.folder, self.header, number) for number, name in enumerate(self._names)
            }
            self._point = None if is_new else self._point_to_return_to()
            self.store.next_episode = self.header.next_episode
        except BaseException:
            self.abandon()
            raise

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _lock(self) -> int:
        """A descriptor of the rows' file that holds its lock; the lock goes with the last process that has it."""
        rows, flags = self.folder / ROWS, os.O_RDWR
        if not (self.folder / _MANIFEST).exists():
            foreign = [path.name for path in self.folder.iterdir() if not _is_own(path.name)]
            if foreign:
                raise CheckpointError(
                    f"{self.folder}: expected a store, or an empty folder for a new one, got "
                    f"{', '.join(sorted(foreign)[:5])}"
                )
            flags |= os.O_CREAT
        try:
            descriptor = os.open(rows, flags, 0o600)
        except OSError as error:
            raise CheckpointError(f"{rows}: expected the rows of a store, got {error.strerror}") from error
        if not lock(descriptor):
            os.close(descriptor)
            raise CheckpointError(
                f"{self.folder}: the store is in use by another process, by the worker of a collector, or was opened "
                "twice in this one; close it there first, and shut its collectors down"
            )
        return descriptor

    def _read_manifest(self) -> StoreManifest | None:
        return read_store_manifest(self.folder) if (self.folder / _MANIFEST).exists() else None

    def _refuse_lost_manifest(self) -> None:
        """Only a creation that was killed may go without."""
        if DiskHeader.is_begun(self.folder / HEADER):
            raise CheckpointError(
                f"{self.folder / _MANIFEST}: expected the manifest of the store that is here; the file is missing"
            )

    def _compare(
        self, manifest: StoreManifest, signature: Signature, tables: Sequence[str], capacity: int | None
    ) -> None:
        try:
            stored = Signature.from_json(manifest.signature)
        except ValueError as error:
            raise CheckpointError(f"{self.folder / _MANIFEST}: {error}") from error
        if stored != signature:
            raise CheckpointError(
                f"{self.folder}: the store has another signature: expected {stored!r}, got {signature!r}; nothing was "
                "changed"
            )
        if set(manifest.tables) != set(tables):
            raise CheckpointError(
                f"{self.folder}: the store has other tables: expected {', '.join(manifest.tables)}, got "
                f"{', '.join(tables)}; nothing was changed"
            )
        if capacity is not None and capacity != manifest.capacity:
            raise CheckpointError(
                f"{self.folder}: the store was made for a capacity of {manifest.capacity} steps, got {capacity}; leave "
                "it out, or load a checkpoint of it. Nothing was changed"
            )

    def _open_store(self, descriptor: int, signature: Signature, capacity: int | None) -> Store:
        manifest = self._manifest

        index = self.folder / INDEX
        if manifest is None:
            return Store(
                signature,
                capacity,
                make_arena=lambda nbytes: Arena.on_disk(os.dup(descriptor), nbytes),
                make_index=lambda nbytes: Arena.file(index, nbytes),
            )
        return stored_store(
            self.folder,
            manifest,
            signature,
            lambda nbytes: open_grown(os.dup(descriptor), nbytes),
            lambda nbytes: open_grown(os.open(index, os.O_RDWR), nbytes),
        )

    def note_paddings(self, paddings: dict[str, dict[str, object]]) -> None:
        """Write down what invented rows hold."""
        write_checked_json(
            self.folder / _PADDINGS, _PaddingsRecord(paddings), _PADDINGS_FORMAT, _PADDINGS_VERSION
        )

    def read_paddings(self) -> dict[str, dict[str, object]]:
        """Returns the paddings written last.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / _PADDINGS
        if not path.exists():
            return {}
        return read_checked_json(path, _PaddingsRecord, _PADDINGS_FORMAT, _PADDINGS_VERSION).paddings

    def _point_to_return_to(self) -> DurablePoint | None:
        """The durable point, if the machine may have failed since the store was used; its counters are the header's.

        Raises:
            CheckpointError: the point is damaged.
        """
        is_same_boot = self.header.boot == boot_id() != 0
        point = self._points.found()
        if point is not None:
            self._points.begin(point.pages[~point.is_lost])
        if is_same_boot or (self._closed is not None and (point is None or self._is_as_closed())):
            return None
        forget_hashes(self.store)
        if point is None:
            return None
        self._closed = None
        _LOGGER.warning(
            "%s: the machine failed, or was started anew, while the store was open. It is as it was at its last "
            "durable flush; what came later is not there",
            self.folder,
        )
        header = self.header
        header.next_key = max(header.next_key, point.next_key) + _UNKNOWN_KEYS
        header.next_episode[0] = max(int(header.next_episode[0]), point.next_episode)
        header.given = point.given
        return point

    def _is_as_closed(self) -> bool:
        return self._closed is not None and is_as_closed(self._closed, self.store, self.header, self._files)

    def _remove(self, keep: set[str]) -> None:
        """Remove our own files but these: what a killed process has left half done."""
        for path in self.folder.iterdir():
            if _is_own(path.name) and path.name not in keep:
                path.unlink()

    # ---- tables ----------------------------------------------------------------------------------------------------

    def open_rings(self, tables: Sequence[Table], random: np.random.Generator) -> list[DurableRing]:
        """The items of these tables, whole again whatever happened, and the pages that they hold.

        Raises:
            CheckpointError: something does not fit, with the file and the place in it.
        """
        if self._manifest is None:
            self._rings = {
                table.name: DurableRing(self.store, table, random, self._files[table.name])
                for table in tables
            }
            return list(self._rings.values())
        found = self._found_items(tables)
        self._rings = {
            table.name: DurableRing(self.store, table, random, self._files[table.name], found[table.name])
            for table in tables
        }
        recover(
            self.store,
            pages_in_use(self.store),
            [
                self._files[name].described(ring.memory, self.header.next_key)
                for name, ring in self._rings.items()
            ],
        )
        return list(self._rings.values())

    def _found_items(self, tables: Sequence[Table]) -> dict[str, ItemMemory]:
        point = self._point
        if point is not None:
            rows, has_lost = restore_rows(self.store, point), bool(point.is_lost.any())
            return {
                table.name: restored_items(
                    point.tables[table.name], table, self._files[table.name], rows, has_lost=has_lost
                )
                for table in tables
            }
        if self._closed is not None:
            refuse_damage(self.folder, self._closed, self.store, self.header, self._files)
            self.header.opened = self._closed.token
        return {table.name: self._files[table.name].found(self.header.next_key) for table in tables}

    def begin(self, random: np.random.Generator) -> None:
        """Everything was found right: from here on the store is in use."""
        current = {files.path.name for files in self._files.values()}
        if self._manifest is None:
            self._write_manifest()
        elif self._closed is not None:
            random.bit_generator.state = generator_state(self._closed.generator)
        self.header.begin()
        self.header.boot = boot_id()
        # Without the record of its close the store counts as killed.
        self._remove(keep={_MANIFEST, ROWS, INDEX, HEADER, _PADDINGS, HASHES, DURABLE, RELEASED, *current})
        if self._closed is not None:
            # It must not come back when the machine fails: the items of then are gone.
            sync_folder(self.folder)
        # Its arrays lie in the file of a point that a later one replaces.
        self._point = None

    def _write_manifest(self) -> None:
        store = self.store
        manifest = StoreManifest(
            store.signature.to_json(),
            store.capacity,
            store.arrays.page_rows,
            store.num_pages,
            _arrays_of(store),
            self._names,
        )
        write_checked_json(self.folder / _MANIFEST, manifest, _STORE_FORMAT, _VERSION)

    def counts_of(self, ring: DurableRing) -> dict[str, int]:
        """Returns the counts of a table."""
        return {name: int(ring.arrays.ring[word]) for name, word in _COUNT_WORDS.items()}

    # ---- syncing and closing ---------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make a durable point of what was applied.

        Raises:
            Closed: the store is closed.
            StoreFull: no room on the disk to begin with.
            OSError: the point could not be written; the last one stays.
        """
        with self.syncing:
            if self.store.is_closed:
                raise Closed("the replay is closed")
            self._points.begin()
            buffers = {name: ring.buffers_for_copy() for name, ring in self._rings.items()}
            with self.store.lock:
                point = self._points.take(self._rings, buffers, self.header)
            for arena in (self.store.arena, self.store.index, self.header.arena):
                arena.sync()
            self._points.write(point)
            with self.store.lock:
                self.store.retain_only(point.pages)

    def close(self, random: np.random.Generator, next_key: int) -> None:
        """Write down what reopening needs to go on exactly, and give the folder free.

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
        """The folder is the parent's: nothing is written to it from here on."""
        self.header.arena.make_private()
        # Another thread may have held it.
        self.syncing = threading.RLock()

    def abandon(self) -> None:
        """Give the folder free as it is; a second call does what Ctrl-C has kept the first from."""
        with self.syncing:
            self._points.close()
            try:
                if not self.store.is_closed:
                    # Before the lock goes: whoever copies rows looks at this afterwards.
                    self.store.is_closed = True
                    # A writer that is overtaken may be writing a row: from here on that reaches no file.
                    self.store.make_private()
            finally:
                self.store.close()


def need_disk(what: str) -> None:
    """Refuse a store on disk where files cannot be mapped and locked as it needs.

    Raises:
        Unsupported: on another system than Linux.
    """
    need_linux(
        what,
        "files that are mapped and locked",
        "Keep the replay in memory, and save checkpoints: replay.save(directory), hr.Replay.load(directory)",
    )


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store, damaged or not."""
    return has_head(folder / _MANIFEST, _STORE_FORMAT)


def read_store_manifest(folder: Path) -> StoreManifest:
    """The manifest of the store in a folder.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    return read_checked_json(folder / _MANIFEST, StoreManifest, _STORE_FORMAT, _VERSION)


def stored_store(
    folder: Path,
    manifest: StoreManifest,
    signature: Signature,
    make_arena: Callable[[int], Arena],
    make_index: Callable[[int], Arena],
) -> Store:
    """Maps the rows of the store in a folder.

    Args:
        folder, manifest, signature: of the store.
        make_arena, make_index: see `Store`.

    Raises:
        CheckpointError: they have another size than a store leaves, or lie otherwise than those of this release.
    """
    num_pages, page_rows = manifest.num_pages, manifest.page_rows
    try:
        check_sizes(
            folder, num_pages, plan_index(num_pages, page_rows), plan_rows(signature, num_pages, page_rows)
        )
        store = Store(
            signature,
            manifest.capacity,
            make_arena=make_arena,
            make_index=make_index,
            page_rows=page_rows,
            num_pages=num_pages,
        )
    except ValueError as error:
        raise CheckpointError(f"{folder / _MANIFEST}: {error}") from error
    if manifest.arrays != _arrays_of(store):
        raise CheckpointError(
            f"{folder}: the rows lie as another release of headrace has written them: expected "
            f"{_arrays_of(store)}, got {manifest.arrays}; load a checkpoint instead"
        )
    return store


def _is_own(name: str) -> bool:
    return name in _OWN_FILES or name.startswith("items-")


def _arrays_of(store: Store) -> tuple[tuple[str, int], ...]:
    """The arrays of rows, and how many bytes a row has in each."""
    return tuple(
        (name, math.prod(array.shape[1:]) * array.dtype.itemsize) for name, array in store.row_arrays.items()
    )
