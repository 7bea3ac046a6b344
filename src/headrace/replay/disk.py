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
from numpy.typing import NDArray

from headrace.errors import CheckpointError, Closed, StoreFull
from headrace.replay import journal
from headrace.replay.durable_ring import DurableRing
from headrace.replay.generator import GeneratorRecord, generator_record, generator_state
from headrace.replay.item_memory import ItemMemory, found_items
from headrace.replay.items import (
    DELETES,
    IGNORED_DELETES,
    IGNORED_UPDATES,
    INSERTS,
    PRIORITY_OF_ALL,
    SAMPLES,
    UPDATES,
)
from headrace.replay.mending import FoundItems, check_items, mend
from headrace.replay.table import Table
from headrace.spec import Signature
from headrace.store.arena import Arena, ArenaLayout
from headrace.store.checked_json import read_checked_json, sync_folder, write_checked_json
from headrace.store.store import Store

_MANIFEST, _ROWS, _HEADER, _CLOSED = "manifest.json", "rows", "header", "closed.json"
_STORE_FORMAT, _CLOSED_FORMAT, _VERSION = "headrace store", "headrace closed store", 1
# What a creation that was killed may have left behind.
_OWN_FILES = (_ROWS, _HEADER, f"{_MANIFEST}.partial")

# The words of the header; the generations of the tables follow them.
_MAGIC, _HEADER_VERSION, _NEXT_KEY, _NEXT_EPISODE, _IS_GIVEN, _IS_BEGUN, _GENERATIONS = 0, 1, 2, 3, 4, 5, 16
_MAGIC_NUMBER = 0x68725F6865616465
# Keys are set aside so many at a time: a killed process leaves a gap of at most that.
_KEYS_AHEAD = 1 << 16

_COUNT_WORDS = {
    "inserts": INSERTS,
    "samples": SAMPLES,
    "deletes": DELETES,
    "updates": UPDATES,
    "ignored_updates": IGNORED_UPDATES,
    "ignored_deletes": IGNORED_DELETES,
}


class _StoreManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
                self._remove(keep={_ROWS})
                os.ftruncate(descriptor, 0)
            else:
                self._compare(self._manifest, signature, tables, capacity)
                capacity = self._manifest.capacity
            self.store = self._open_store(descriptor, signature, capacity)
        finally:
            # The arena has a descriptor of its own; the lock is shared by all of them.
            os.close(descriptor)
        self._syncing = threading.Lock()
        self.is_durable = False
        try:
            self._names = self._manifest.tables if self._manifest is not None else tuple(tables)
            self._closed = self._read_closed()
            self._open_header()
        except BaseException:
            self.abandon()
            raise

    # ---- opening ---------------------------------------------------------------------------------------------------

    def _lock(self) -> int:
        """A descriptor of the rows' file that holds its lock; the lock goes with the last process that has it."""
        rows, flags = self.folder / _ROWS, os.O_RDWR | os.O_CLOEXEC
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
                f"{self.folder}: the store is in use by another process, or was opened twice in this one; close it "
                "there first"
            ) from error
        return descriptor

    def _read_manifest(self) -> _StoreManifest | None:
        path = self.folder / _MANIFEST
        return read_checked_json(path, _StoreManifest, _STORE_FORMAT, _VERSION) if path.exists() else None

    def _refuse_lost_manifest(self) -> None:
        """Only a creation that was killed may go without."""
        header = self.folder / _HEADER
        words = np.fromfile(header, np.int64, _GENERATIONS) if header.exists() else np.zeros(0, np.int64)
        if len(words) > _IS_BEGUN and words[_IS_BEGUN]:
            raise CheckpointError(
                f"{self.folder / _MANIFEST}: expected the manifest of the store that is here; the file is missing"
            )

    def _compare(
        self, manifest: _StoreManifest, signature: Signature, tables: Sequence[str], capacity: int | None
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
                    f"{self.folder / _ROWS}: expected {nbytes} bytes, got {size}; the file is damaged"
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
        if manifest.arrays != _arrays_of(store):
            raise CheckpointError(
                f"{self.folder}: the rows lie as another release of headrace has written them: expected "
                f"{_arrays_of(store)}, got {manifest.arrays}; load a checkpoint instead"
            )
        return store

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

    def _open_header(self) -> None:
        path, is_new = self.folder / _HEADER, self._manifest is None
        layout = ArenaLayout()
        layout.add("words", (_GENERATIONS + len(self._names),), np.int64)
        layout.add("given", (len(self.store.signature.columns),), np.uint8)
        if is_new:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.stat().st_size != layout.nbytes:
            raise CheckpointError(f"{path}: expected {layout.nbytes} bytes; the file is missing or damaged")
        self._header = Arena.file(path, layout.nbytes)
        self._header.reserve(0, layout.nbytes)
        arrays = layout.arrays(self._header)
        self._words: NDArray[np.int64] = arrays["words"]  # type: ignore[assignment]
        self._given: NDArray[np.uint8] = arrays["given"]  # type: ignore[assignment]
        if is_new:
            self._words[_NEXT_KEY] = 1
            self._words[[_MAGIC, _HEADER_VERSION]] = _MAGIC_NUMBER, _VERSION
        self._check_header(path)
        self.store.next_episode = self._words[_NEXT_EPISODE : _NEXT_EPISODE + 1]

    def _check_header(self, path: Path) -> None:
        for word, least, most in (
            (_MAGIC, _MAGIC_NUMBER, _MAGIC_NUMBER),
            (_HEADER_VERSION, _VERSION, _VERSION),
            (_NEXT_KEY, 1, 1 << 62),
            (_NEXT_EPISODE, 0, 1 << 62),
            (_IS_GIVEN, 0, 1),
            (_IS_BEGUN, 0, 1),
        ):
            if not least <= self._words[word] <= most:
                raise CheckpointError(
                    f"{path}, byte {8 * word}: expected a number from {least} to {most}, got {self._words[word]}"
                )

    # ---- tables ----------------------------------------------------------------------------------------------------

    def open_rings(self, tables: Sequence[Table], random: np.random.Generator) -> list[DurableRing]:
        """The items of these tables, whole again whatever happened, and the pages that they hold.

        Raises:
            CheckpointError: something does not fit, with the file and the place in it.
        """
        self._files = [_TableFiles(self, self._names.index(table.name)) for table in tables]
        if self._manifest is None:
            return [
                DurableRing(self.store, table, random, files)
                for table, files in zip(tables, self._files, strict=True)
            ]
        rings = []
        for table, files in zip(tables, self._files, strict=True):
            found = files.found(self.next_key)
            rings.append(DurableRing(self.store, table, random, files, found))
        in_use = np.flatnonzero(self.store.arrays.pages.any(axis=1))
        mend(
            self.store,
            int(in_use[-1]) + 1 if len(in_use) else 0,
            [
                files.described(ring.memory, self.next_key)
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
        self._words[_IS_BEGUN] = 1
        # Without the record of its close the store counts as killed.
        self._remove(keep={_MANIFEST, _ROWS, _HEADER, *current})

    def _write_manifest(self) -> None:
        store = self.store
        manifest = _StoreManifest(
            store.signature.to_json(),
            store.capacity,
            store.arrays.page_rows,
            store.num_pages,
            _arrays_of(store),
            self._names,
        )
        write_checked_json(self.folder / _MANIFEST, manifest, _STORE_FORMAT, _VERSION)

    # ---- counters --------------------------------------------------------------------------------------------------

    @property
    def next_key(self) -> int:
        """No key from here on was ever used."""
        return int(self._words[_NEXT_KEY])

    def set_keys_aside(self, next_key: int) -> int:
        """Say that keys beyond `next_key` will be used; returns up to which."""
        self._words[_NEXT_KEY] = next_key + _KEYS_AHEAD
        return next_key + _KEYS_AHEAD

    @property
    def given(self) -> frozenset[str]:
        """The columns that final rows are given; empty while none were."""
        names = self.store.signature.columns if self._words[_IS_GIVEN] else ()
        return frozenset(name for name, is_given in zip(names, self._given, strict=False) if is_given)

    def note_given(self, columns: frozenset[str]) -> None:
        """Write that down."""
        self._given[:] = [name in columns for name in self.store.signature.columns]
        self._words[_IS_GIVEN] = 1

    def counts_of(self, ring: DurableRing) -> dict[str, int]:
        """What a table has counted."""
        return {name: int(ring.arrays.ring[word]) for name, word in _COUNT_WORDS.items()}

    def turn_generation(self, number: int, generation: int) -> None:
        """From here on this generation of a table's items counts: one store of eight bytes."""
        self._words[_GENERATIONS + number] = generation
        if self.is_durable:
            self._header.sync()

    def generation_of(self, number: int) -> int:
        """Which generation of a table's items counts."""
        return int(self._words[_GENERATIONS + number])

    # ---- syncing and closing ---------------------------------------------------------------------------------------

    def sync(self, arenas: Sequence[Arena]) -> None:
        """Put rows, header and these items on the disk."""
        with self._syncing:
            if self.store.is_closed:
                raise Closed("the replay is closed")
            for arena in (*arenas, self.store.arena, self._header):
                arena.sync()
            sync_folder(self.folder)

    def close(self, random: np.random.Generator, next_key: int) -> None:
        """Write down what reopening needs to go on exactly, and give the folder free."""
        try:
            self._words[_NEXT_KEY] = next_key
            record = _ClosedRecord(generator_record(random.bit_generator.state), next_key)
            write_checked_json(self.folder / _CLOSED, record, _CLOSED_FORMAT, _VERSION)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Give the folder free as it is."""
        with self._syncing:
            if not self.store.is_closed:
                # Arrays over the mapping would keep the lock.
                fcntl.flock(self.store.arena.descriptor, fcntl.LOCK_UN)
                self.store.close()


class _TableFiles:
    """The generations of one table's items."""

    def __init__(self, disk: Disk, number: int) -> None:
        self._disk = disk
        self._number = number
        self._generation = disk.generation_of(number)

    @property
    def path(self) -> Path:
        """Of the generation that counts."""
        return self._path(self._generation)

    def _path(self, generation: int) -> Path:
        return self._disk.folder / f"items-{self._number}-{generation}"

    def new(self, nbytes: int) -> Arena:
        """The file of the next generation."""
        path = self._path(self._generation + 1)
        path.unlink(missing_ok=True)
        arena = Arena.file(path, nbytes)
        try:
            arena.reserve(0, nbytes)
        except OSError as error:
            arena.close()
            path.unlink()
            raise StoreFull(f"no room for {nbytes} bytes of items on the disk: {error}") from error
        return arena

    def turn(self, arena: Arena) -> None:
        """From here on the next generation, which is complete, counts; the older file is removed."""
        old = self.path
        if self._disk.is_durable:
            arena.sync()
            sync_folder(self._disk.folder)
        self._generation += 1
        self._disk.turn_generation(self._number, self._generation)
        old.unlink(missing_ok=True)

    def found(self, next_key: int) -> ItemMemory:
        """The items in the file, as they were before or after the last change.

        Raises:
            CheckpointError: with the place.
        """
        if self._generation < 1 or not self.path.is_file() or not self.path.stat().st_size:
            raise CheckpointError(f"{self.path}: expected the items of a table; the file is missing or empty")
        arena = Arena.file(self.path, self.path.stat().st_size)
        memory = found_items(arena)
        if memory is None:
            raise CheckpointError(f"{self.path}, byte 0: expected the items of a table; the file is damaged")
        if not journal.is_sound(memory.items):
            offset = memory.layout.places["journal"][0]
            raise CheckpointError(f"{self.path}, byte {offset}: expected a journal; the file is damaged")
        journal.undo(memory.items, PRIORITY_OF_ALL)
        check_items(self.described(memory, next_key))
        return memory

    def described(self, memory: ItemMemory, next_key: int) -> FoundItems:
        """Items for `mend`."""
        ring = memory.items.ring
        counts = (int(ring[INSERTS]), int(ring[SAMPLES]), int(ring[DELETES]))

        def where(name: str, place: int) -> str:
            array = getattr(memory.items, name)
            begin = array.__array_interface__["data"][0] - memory.memory.__array_interface__["data"][0]
            return f"{self.path}, byte {begin + place * array.strides[0]} ({name})"

        return FoundItems(memory.items, counts, 0, next_key, where)


def _is_own(name: str) -> bool:
    return name in _OWN_FILES or name == _CLOSED or name == f"{_CLOSED}.partial" or name.startswith("items-")


def _arrays_of(store: Store) -> tuple[tuple[str, int], ...]:
    """The arrays of rows, and how many bytes a row has in each."""
    return tuple(
        (name, math.prod(array.shape[1:]) * array.dtype.itemsize) for name, array in store.row_arrays.items()
    )
