"""A store on disk: the files of a replay in one folder, owned by one process.

    manifest.json     what is stored: signature, sizes, names of tables. Written last: without it there is no store
    rows              the arena of the store, mapped. It is locked by its owner, and by the workers that write in it
    header            counters that must never go back, and which generation of items counts; mapped
    items-T-G         the items of table T, generation G; mapped
    closed.json       after an orderly close: the random generator, and where counters stand exactly

What keeps a change whole when the process is killed is told in `durable_ring.py`.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import CheckpointError, Closed
from headrace.replay.disk_header import DiskHeader
from headrace.replay.durable_ring import DurableRing
from headrace.replay.generations import Generations
from headrace.replay.generator import GeneratorRecord, generator_record, generator_state
from headrace.replay.items import (
    DELETES,
    IGNORED_DELETES,
    IGNORED_UPDATES,
    INSERTS,
    SAMPLES,
    UPDATES,
)
from headrace.replay.mending import mend
from headrace.replay.table import Table
from headrace.spec import Signature
from headrace.store.arena import Arena
from headrace.store.checked_json import read_checked_json, sync_folder, write_checked_json
from headrace.store.store import Store

ROWS, HEADER = "rows", "header"
_MANIFEST, _CLOSED = "manifest.json", "closed.json"
_PADDINGS = "paddings.json"
_STORE_FORMAT, _CLOSED_FORMAT, _VERSION = "headrace store", "headrace closed store", 1
_PADDINGS_FORMAT = "headrace paddings"
# What a creation that was killed may have left behind.
_OWN_FILES = (ROWS, HEADER, f"{_MANIFEST}.partial", f"{_PADDINGS}.partial")

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
    """What is stored, and how it lies in the files."""

    signature: dict[str, object]
    capacity: int | None
    page_rows: int
    num_pages: int
    arrays: tuple[tuple[str, int], ...]
    tables: tuple[str, ...]


class _ClosedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    generator: GeneratorRecord
    next_key: int


class Disk:
    """The folder of a store, opened.

    Args:
        path: of the folder; a store is made where there is none.
        signature: of one step.
        tables: names, in their order.
        capacity: of a new store; None takes what a store that is there has.

    Raises:
        CheckpointError: another process uses it; it holds something else; it is damaged.

    Attributes:
        store: the rows; pages are as they were found until `open_rings` has mended them.
        header: counters that never go back.
    """

    def __init__(
        self, path: str | os.PathLike[str], signature: Signature, tables: Sequence[str], capacity: int | None
    ) -> None:
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
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            raise
        finally:
            # The arena has a descriptor of its own; the lock is shared by all of them.
            os.close(descriptor)
        self._syncing = threading.Lock()
        try:
            self._names = self._manifest.tables if self._manifest is not None else tuple(tables)
            self._closed = self._read_closed()
            columns = tuple(signature.columns)
            is_new = self._manifest is None
            self.header = DiskHeader(self.folder / HEADER, columns, len(self._names), is_new=is_new)
            self.store.next_episode = self.header.next_episode
        except BaseException:
            self.abandon()
            raise

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _lock(self) -> int:
        """A descriptor of the rows' file that holds its lock; the lock goes with the last process that has it."""
        rows, flags = self.folder / ROWS, os.O_RDWR | os.O_CLOEXEC
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
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise CheckpointError(
                f"{self.folder}: the store is in use by another process, by the worker of a collector, or was opened "
                "twice in this one; close it there first, and shut its collectors down"
            ) from error
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

        def make_arena(nbytes: int) -> Arena:
            size = os.fstat(descriptor).st_size
            if manifest is not None and size != nbytes:
                raise CheckpointError(
                    f"{self.folder / ROWS}: expected {nbytes} bytes, got {size}; the file is damaged"
                )
            return Arena.on_disk(os.dup(descriptor), nbytes)

        if manifest is None:
            return Store(signature, capacity, make_arena=make_arena)
        try:
            store = Store(
                signature,
                capacity,
                make_arena=make_arena,
                page_rows=manifest.page_rows,
                num_pages=manifest.num_pages,
            )
        except ValueError as error:
            raise CheckpointError(f"{self.folder / _MANIFEST}: {error}") from error
        check_arrays(self.folder, manifest, store)
        return store

    def note_paddings(self, paddings: dict[str, dict[str, object]]) -> None:
        """Write down what invented rows hold."""
        write_checked_json(self.folder / _PADDINGS, _PaddingsRecord(paddings), _PADDINGS_FORMAT, _VERSION)

    def read_paddings(self) -> dict[str, dict[str, object]]:
        """What was written down last.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / _PADDINGS
        if not path.exists():
            return {}
        return read_checked_json(path, _PaddingsRecord, _PADDINGS_FORMAT, _VERSION).paddings

    def _read_closed(self) -> _ClosedRecord | None:
        path = self.folder / _CLOSED
        if not path.exists():
            return None
        record = read_checked_json(path, _ClosedRecord, _CLOSED_FORMAT, _VERSION)
        try:
            generator_state(record.generator)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from error
        return record

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
        self._files = [
            Generations(self.folder, self.header, self._names.index(table.name)) for table in tables
        ]
        if self._manifest is None:
            return [
                DurableRing(self.store, table, random, files)
                for table, files in zip(tables, self._files, strict=True)
            ]
        rings = []
        for table, files in zip(tables, self._files, strict=True):
            found = files.found(self.header.next_key)
            rings.append(DurableRing(self.store, table, random, files, found))
        in_use = np.flatnonzero(self.store.arrays.pages.any(axis=1))
        mend(
            self.store,
            int(in_use[-1]) + 1 if len(in_use) else 0,
            [
                files.described(ring.memory, self.header.next_key)
                for files, ring in zip(self._files, rings, strict=True)
            ],
        )
        return rings

    def begin(self, random: np.random.Generator) -> None:
        """Everything was found right: from here on the store is in use."""
        current = {files.path.name for files in self._files}
        if self._manifest is None:
            self._write_manifest()
        elif self._closed is not None:
            random.bit_generator.state = generator_state(self._closed.generator)
        self.header.begin()
        # Without the record of its close the store counts as killed.
        self._remove(keep={_MANIFEST, ROWS, HEADER, _PADDINGS, *current})

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
        """What a table has counted."""
        return {name: int(ring.arrays.ring[word]) for name, word in _COUNT_WORDS.items()}

    # ---- syncing and closing ---------------------------------------------------------------------------------------

    def sync(self, arenas: Sequence[Arena]) -> None:
        """Put rows, header and these items on the disk."""
        with self._syncing:
            if self.store.is_closed:
                raise Closed("the replay is closed")
            for arena in (*arenas, self.store.arena, self.header.arena):
                arena.sync()
            sync_folder(self.folder)

    def close(self, random: np.random.Generator, next_key: int) -> None:
        """Write down what reopening needs to go on exactly, and give the folder free."""
        try:
            self.header.next_key = next_key
            record = _ClosedRecord(generator_record(random.bit_generator.state), next_key)
            write_checked_json(self.folder / _CLOSED, record, _CLOSED_FORMAT, _VERSION)
        finally:
            self.abandon()

    def after_fork_in_child(self) -> None:
        """The folder is the parent's: nothing is written to it from here on."""
        self.header.is_durable = False
        self.header.arena.make_private()

    def abandon(self) -> None:
        """Give the folder free as it is."""
        with self._syncing:
            if self.store.is_closed:
                return
            # Before the lock goes: whoever copies rows looks at this afterwards.
            self.store.is_closed = True
            try:
                # A writer that is overtaken may be writing a row: from here on that reaches no file.
                self.store.arena.make_private()
            finally:
                self.store.close()


def is_store(folder: Path) -> bool:
    """Whether a folder holds a store, damaged or not."""
    expected = f'{{"format":"{_STORE_FORMAT}",'.encode()
    try:
        with open(folder / _MANIFEST, "rb") as file:
            return file.read(len(expected)) == expected
    except OSError:
        return False


def read_store_manifest(folder: Path) -> StoreManifest:
    """The manifest of the store in a folder.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    return read_checked_json(folder / _MANIFEST, StoreManifest, _STORE_FORMAT, _VERSION)


def check_arrays(folder: Path, manifest: StoreManifest, store: Store) -> None:
    """Refuses rows that lie otherwise than those of this release.

    Raises:
        CheckpointError: they do.
    """
    if manifest.arrays != _arrays_of(store):
        raise CheckpointError(
            f"{folder}: the rows lie as another release of headrace has written them: expected "
            f"{_arrays_of(store)}, got {manifest.arrays}; load a checkpoint instead"
        )


def _is_own(name: str) -> bool:
    return (
        name in _OWN_FILES
        or name in (_CLOSED, _PADDINGS)
        or name == f"{_CLOSED}.partial"
        or name.startswith("items-")
    )


def _arrays_of(store: Store) -> tuple[tuple[str, int], ...]:
    """The arrays of rows, and how many bytes a row has in each."""
    return tuple(
        (name, math.prod(array.shape[1:]) * array.dtype.itemsize) for name, array in store.row_arrays.items()
    )
