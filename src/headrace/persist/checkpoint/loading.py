"""Reading a checkpoint: every file is hashed and every number looked at before a replay is made of it."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.checkpoint.files import HashedReader, io_threads, open_file, record_of_array
from headrace.persist.checkpoint.folders import candidates, is_checkpoint
from headrace.persist.checkpoint.manifest import (
    MANIFEST,
    ArrayRecord,
    FileRecord,
    Manifest,
    TableEntry,
    read_manifest,
)
from headrace.persist.generator import generator_state
from headrace.persist.recovery import FoundItems, Where, recover
from headrace.persist.states import ReplayState
from headrace.spec import Signature
from headrace.store.layout import (
    LANES,
    MAX_ROWS,
    ORPHAN,
    PAGE_WORDS,
    STARTS,
    USED,
    VERSIONED,
    reserved_pages,
)
from headrace.store.pages.ranges import used_ranges
from headrace.store.store import Store
from headrace.tables.custom_ring import for_kernels
from headrace.tables.description.table import Table
from headrace.tables.description.table_json import table_from_json
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_state import (
    PER_ITEM,
    RECORDS,
    arrays_by_name,
    empty_memory,
    finish_items,
    segments,
)
from headrace.tables.items.layout import (
    FIRST,
    RECORD_ROW,
    RECORD_TIMES,
    RECORD_WORDS,
    RING_WORDS,
    SPAN,
    WINDOW_WORDS,
)
from headrace.tables.table_state import COUNTS, TableState

# Where a checkpoint has more pages than this machine would reserve.
_SPARE_PAGES = 64
_DTYPES = {
    RECORDS: np.uint32,
    "priorities": np.float64,
    "windows": np.uint32,
    "touches": np.int64,
    "pages": np.int64,
    "start_rows": np.uint32,
    "start_ids": np.int64,
    "versions": np.int32,
    "links": np.int64,
    "orphans": np.int64,
}
_PER_ITEM_SHAPES = {RECORDS: (RECORD_WORDS,), "windows": (WINDOW_WORDS,)}


T = TypeVar("T")

Loaded = ReplayState[ItemMemory]
"""The state of a replay whose items lie in the arrays that its tables will use."""


class _OtherTables(CheckpointError):
    """Not the checkpoint's fault, so no older one is tried."""


def load(
    path: str | os.PathLike[str], tables: Sequence[Table] | None, make: Callable[[Loaded, Store], T]
) -> T:
    """Reads a checkpoint and makes a replay of it; see `Replay.load`.

    Args:
        path, tables: as of `Replay.load`.
        make: makes a replay of a state and its store, whose rows are complete. A ValueError that it raises is damage.
    """
    place = Path(path)
    if is_checkpoint(place):
        return _load_one(place, tables, make)
    for candidate in candidates(place):
        try:
            return _load_one(candidate, tables, make)
        except _OtherTables:
            raise
        except CheckpointError as error:
            warnings.warn(f"{candidate.name} is left out: {error}", UserWarning, stacklevel=3)
    raise CheckpointError(
        f"{place}: expected a checkpoint, or a directory with one that is whole; there is none"
    )


def _load_one(folder: Path, tables: Sequence[Table] | None, make: Callable[[Loaded, Store], T]) -> T:
    manifest = read_manifest(folder)
    with _damage_in(folder / MANIFEST):
        state, store = _Checkpoint(folder, manifest).load(tables)
        with ExitStack() as on_failure:
            on_failure.callback(store.close)
            made = make(state, store)
            on_failure.pop_all()
        return made


@contextmanager
def _damage_in(path: Path) -> Iterator[None]:
    """Inconsistent contents are damage, even if the checksums match."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: the checkpoint contradicts itself: {error}") from error


class _Checkpoint:
    """One checkpoint that is being read."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._folder = folder
        self._manifest = manifest
        self._files = {record.name: record for record in manifest.files}
        for record in manifest.files:
            if Path(record.name).name != record.name:
                raise ValueError(f"expected files of this folder, got {record.name!r}")
            os.close(open_file(folder, record))  # Missing and cut files are told before anything is read.

    def load(self, tables: Sequence[Table] | None) -> tuple[Loaded, Store]:
        """Reads the state, with other settings if `tables` has them, and the store."""
        manifest = self._manifest
        saved = [table_from_json(entry.table) for entry in manifest.tables]
        if not saved:
            raise ValueError("expected at least one table, got none")
        chosen = _chosen(self._folder, saved, tables)
        with ExitStack() as on_failure:
            with self._reading():
                index = self._plan_arrays("index.bin")
                states = [self._plan_table(entry, chosen[entry.table.name]) for entry in manifest.tables]
                self._finish("index.bin")
                store = self._new_store(index["pages"])
                # Once nothing is read into it any more.
                on_failure.callback(store.close)
                state = self._filled(store, index, saved, states)
            on_failure.pop_all()
        return state, store

    def _filled(
        self,
        store: Store,
        index: Mapping[str, NDArray[Any]],
        saved: Sequence[Table],
        states: list[TableState[ItemMemory]],
    ) -> Loaded:
        """Items and words of rows are read first, and looked at while the values of rows are still on their way."""
        steps = self._plan_rows(store, index["pages"])
        self._finish(*(entry.file for entry in self._manifest.tables))
        state = self._state(store.signature, states)
        found = self._found(saved, states)
        self._finish(steps)
        self._fill_metadata(store, index)
        recover(store, len(index["pages"]), found)
        return state

    def _found(self, saved: Sequence[Table], states: list[TableState[ItemMemory]]) -> list[FoundItems]:
        """Completes the items of all tables, which nothing has checked yet."""
        found = []
        for table, entry, state in zip(saved, self._manifest.tables, states, strict=True):
            items = state.items.arrays
            finish_items(items, entry.state({}), self._names_in(entry))
            counts = (entry.counts["inserts"], entry.counts["samples"], entry.counts["deletes"])
            next_key = self._manifest.next_key
            found.append(FoundItems(items, counts, table.max_times_sampled, next_key, self._where(entry)))
        return found

    # ---- reading ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Reads requested within the block run in parallel; at its end all data are read and verified."""
        self._readers: dict[str, HashedReader] = {}
        with ExitStack() as files, io_threads() as threads:
            self._open, self._threads = files, threads
            yield
            self._finish(*self._readers)

    def _finish(self, *files: str) -> None:
        """Wait for these files and compare their checksums; nothing in them was to be trusted before."""
        for name in files:
            self._readers.pop(name).finish()

    def _reader(self, record: FileRecord) -> HashedReader:
        reader = self._open.enter_context(HashedReader(self._folder, record, self._threads))
        self._readers[record.name] = reader
        return reader

    def _plan_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Arrays of their own for those of a file."""
        record = self._checked_record(name)
        found = {array.name: np.empty(array.shape, array.dtype) for array in record.arrays}
        reader = self._reader(record)
        for made in found.values():
            reader.read_into(made)
        return found

    def _checked_record(self, name: str) -> FileRecord:
        record = self._files[name]
        for array in record.arrays:
            if np.dtype(array.dtype) != _DTYPES[array.name] or min(array.shape, default=0) < 0:
                raise ValueError(f"{name}: {array.name}: expected {_DTYPES[array.name]}, got {array.dtype}")
        if sum(map(_nbytes, record.arrays)) != record.size:
            raise ValueError(f"{name}: expected {record.size} bytes of arrays, got {record.arrays}")
        return record

    def _state(self, signature: Signature, tables: list[TableState[ItemMemory]]) -> ReplayState[ItemMemory]:
        manifest = self._manifest
        unknown = set(manifest.given) - set(signature.columns)
        if unknown or manifest.next_key < 1 or manifest.next_episode < 0:
            raise ValueError(f"expected columns and counters, got {manifest.given}, {manifest.next_key}")
        # The saved replay went on, and may have used any key since; so no key is below the clock's (replay K1).
        later = time.time_ns() // 1000 << 10
        next_key = max(manifest.next_key, later)
        skipped = (*manifest.skipped_keys, (manifest.next_key, next_key))
        if not all(1 <= first <= after <= next_key for first, after in skipped):
            raise ValueError(f"expected keys that were skipped, got {manifest.skipped_keys}")
        return ReplayState(
            signature,
            manifest.capacity,
            tables,
            next_key,
            manifest.next_episode,
            frozenset(manifest.given),
            manifest.paddings,
            generator_state(manifest.generator),
            skipped,
        )

    # ---- rows ------------------------------------------------------------------------------------------------------

    def _new_store(self, words: NDArray[np.int64]) -> Store:
        """An empty store with room for these pages."""
        manifest = self._manifest
        signature = Signature.from_json(manifest.signature)
        _check_words(words, manifest.page_rows)
        reserved = reserved_pages(manifest.capacity, signature.nbytes, manifest.page_rows)
        num_pages = max(reserved, len(words) + _SPARE_PAGES)
        return Store(
            signature,
            manifest.capacity,
            page_rows=manifest.page_rows,
            num_pages=num_pages,
        )

    def _plan_rows(self, store: Store, words: NDArray[np.int64]) -> str:
        """The words and values of all rows; returns the name of the file of the words."""
        ranges = used_ranges(np.arange(len(words)), words, store.arrays.page_rows)
        arrays = {"steps": store.arrays.steps, **store.row_arrays}
        files = {record.arrays[0].name: record for record in self._files.values() if record.arrays}
        for name, array in arrays.items():
            self._plan_values(files[name], array, ranges)
        store.arrays.pages[: len(words)] = words
        return files["steps"].name

    def _plan_values(self, record: FileRecord, array: NDArray[Any], ranges: NDArray[np.int64]) -> None:
        total = int((ranges[:, 1] - ranges[:, 0]).sum())
        if record.arrays != (record_of_array(record.arrays[0].name, array, total),):
            raise ValueError(
                f"expected {total} rows of {array.dtype.str} {array.shape[1:]}, got {record.arrays}"
            )
        reader = self._reader(record)
        for start, stop in ranges.tolist():
            reader.read_into(array[start:stop])

    def _fill_metadata(self, store: Store, index: Mapping[str, NDArray[Any]]) -> None:
        """Reads the metadata of rows: episodes, versions, links to final rows."""
        arrays, words, page_rows = store.arrays, index["pages"], self._manifest.page_rows
        starts, stamps = words[:, STARTS], np.where(words[:, VERSIONED] != 0, words[:, USED], 0)
        _expect_length(index["start_rows"], int(starts.sum()))
        _expect_length(index["start_ids"], int(starts.sum()))
        _expect_length(index["versions"], int(stamps.sum()))
        done = stamped = 0
        for page, (count, versions) in enumerate(zip(starts.tolist(), stamps.tolist(), strict=True)):
            first = page * page_rows
            arrays.start_rows[first : first + count] = index["start_rows"][done : done + count]
            arrays.start_ids[first : first + count] = index["start_ids"][done : done + count]
            store.versions[first : first + versions] = index["versions"][stamped : stamped + versions]
            done += count
            stamped += versions
        last, final = index["links"]
        for rows in (last, final, index["orphans"]):
            if len(rows) and not 0 <= rows.min() <= rows.max() < len(words) * page_rows:
                raise ValueError(f"expected rows below {len(words) * page_rows}, got {rows.max()}")
        arrays.links[last] = final + 1
        arrays.links[final] = last + 1
        arrays.links[index["orphans"]] = ORPHAN

    # ---- items -----------------------------------------------------------------------------------------------------

    def _plan_table(self, entry: TableEntry, table: Table) -> TableState[ItemMemory]:
        if set(entry.counts) != set(COUNTS) or min(entry.counts.values()) < 0:
            raise ValueError(
                f"table {table.name!r}: expected the counts {', '.join(COUNTS)}, got {entry.counts}"
            )
        return TableState(table, dict(entry.counts), self._plan_items(entry, table))

    def _plan_items(self, entry: TableEntry, table: Table) -> ItemMemory:
        if len(entry.ring) != RING_WORDS or not 1 <= entry.capacity <= MAX_ROWS or entry.scratch < 1:
            raise ValueError(f"table {entry.table.name!r}: expected the words of a ring, got {entry.ring}")
        first, span = entry.ring[FIRST], entry.ring[SPAN]
        if not (0 <= first < entry.capacity and 0 <= span <= entry.capacity):
            raise ValueError(
                f"table {entry.table.name!r}: expected slots below {entry.capacity}, got {first}, {span}"
            )
        record = self._checked_record(entry.file)
        names = self._names_in(entry)
        if not {RECORDS} <= names <= set(PER_ITEM) or len(names) != len(record.arrays):
            raise ValueError(f"{entry.file}: expected the arrays of items, got {', '.join(names)}")
        selectors = for_kernels(table.sampler), for_kernels(table.remover)
        memory = empty_memory(entry.capacity, names, *selectors)
        places, reader = arrays_by_name(memory.arrays), self._reader(record)
        for array in record.arrays:
            wanted = (span, *_PER_ITEM_SHAPES.get(array.name, ()))
            if array.shape != wanted:
                raise ValueError(
                    f"{entry.file}: {array.name}: expected the shape {wanted}, got {array.shape}"
                )
            # Arrays that the present selectors ignore are read too, to verify their checksums.
            place = places.get(array.name)
            whole = np.empty(wanted, array.dtype) if place is None else place
            for part in segments(whole, 0 if place is None else first, span):
                reader.read_into(part)
        return memory

    def _names_in(self, entry: TableEntry) -> set[str]:
        return {array.name for array in self._files[entry.file].arrays}

    def _where(self, entry: TableEntry) -> Where:
        record = self._files[entry.file]

        def where(name: str, place: int) -> str:
            within = {"keys": 0, "rows": 4 * RECORD_ROW, "times": 4 * RECORD_TIMES}
            offset = within.get(name, 0)
            for array in record.arrays:
                if array.name == (RECORDS if name in within else name):
                    in_ring = (place - entry.ring[FIRST]) % entry.capacity
                    per_item = math.prod(array.shape[1:]) * np.dtype(array.dtype).itemsize
                    return f"{self._folder / entry.file}, byte {offset + in_ring * per_item} ({name})"
                offset += _nbytes(array)
            return f"{self._folder / MANIFEST}, table {entry.table.name!r}, {name}"

        return where


def _chosen(folder: Path, saved: Sequence[Table], tables: Sequence[Table] | None) -> dict[str, Table]:
    names, given = {table.name for table in saved}, {table.name for table in tables or saved}
    if names != given:
        raise _OtherTables(
            f"{folder}: expected tables of the names saved, {', '.join(sorted(names))}, "
            f"got {', '.join(sorted(given))}"
        )
    return {table.name: table for table in tables or saved}


def _nbytes(array: ArrayRecord) -> int:
    return math.prod(array.shape) * np.dtype(array.dtype).itemsize


def _expect_length(array: NDArray[Any], length: int) -> None:
    if array.shape != (length,):
        raise ValueError(f"expected {length} entries, as the pages say, got {array.shape}")


def _check_words(words: NDArray[np.int64], page_rows: int) -> None:
    if words.ndim != 2 or words.shape[1] != PAGE_WORDS or not 1 <= page_rows <= MAX_ROWS:
        raise ValueError(f"expected {PAGE_WORDS} words for each page of {page_rows} rows, got {words.shape}")
    lanes, used, starts = words[:, LANES], words[:, USED], words[:, STARTS]
    good = (lanes >= 1) & (used >= 1) & (used * lanes <= page_rows) & (starts >= 0) & (starts <= page_rows)
    if not good.all():
        raise ValueError(
            f"page {int(np.argmin(good))}: expected words of a page, got {words[np.argmin(good)]}"
        )
