"""Writing a checkpoint: the index is copied under the replay's lock, the rows are written without it.

The pages in use are held like those of any reader, so their rows stay as they are; each is given back as soon as it is
written. Pages and rows are renumbered without gaps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.persist.checkpoint.files import HashedWriter, io_threads, record_of_array
from headrace.persist.checkpoint.folders import new_folder, publish, remove_older
from headrace.persist.checkpoint.manifest import SCRATCH, FileRecord, Manifest, TableEntry, write_manifest
from headrace.persist.final_rows import SavedRows
from headrace.persist.generator import generator_record
from headrace.persist.items_record import record_fields
from headrace.persist.states import ReplayState, Saveable
from headrace.store.layout import (
    FINAL,
    LANES,
    LINKED,
    LINKED_ROWS,
    NEXT,
    NO_LINK,
    PREVIOUS,
    REFERENCES,
    STARTS,
    USED,
    versions_in,
)
from headrace.store.pages.held_pages import HeldPages
from headrace.store.pages.ranges import flagged_rows, used_ranges
from headrace.store.store import Store
from headrace.tables.description.table_json import table_to_json
from headrace.tables.item_state import RECORDS, ItemState
from headrace.tables.items.layout import RECORD_ROW
from headrace.tables.table_state import TableState

# Bytes of the pages that are written, and then released, together.
_GROUP_BYTES = 32 << 20


def save(replay: Saveable, directory: str | os.PathLike[str], keep: int | None) -> Path:
    """See `Replay.save`."""
    keep = None if keep is None else check_count("keep", keep, 1)
    _check_savable(replay)
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    with new_folder(place) as folder:
        # The threads end before the files are closed, which they use.
        with ExitStack() as to_close, io_threads() as threads:
            files = _Files(folder, threads, to_close)
            with HeldPages(replay.store) as held:
                manifest = _write(files, replay.store, replay.copy_state(held), held)
            files.sync()
        write_manifest(folder, manifest)
        path = publish(folder, place)
    if keep is not None:
        remove_older(place, keep)
    return path


def _check_savable(replay: Saveable) -> None:
    replay.store.signature.to_json()
    for table in replay.descriptions():
        try:
            table_to_json(table)
        except ValueError as error:
            raise ValueError(
                f"save: table {table.name!r}: {error}. Nothing was written. Make the replay that is saved with one of "
                f"Headrace's own in its place, and give yours when it comes back: Replay.load(path, tables=[...])"
            ) from error


class _Files:
    """The files of a checkpoint that is being written, open until all are on the disk.

    They are synced together at the end: then the disk has long begun to write all of them.

    Args:
        folder: of the checkpoint.
        threads: of `io_threads`.
        to_close: closes the files.
    """

    def __init__(self, folder: Path, threads: ThreadPoolExecutor, to_close: ExitStack) -> None:
        self._folder = folder
        self._threads = threads
        self._to_close = to_close
        self._writers: list[HashedWriter] = []

    def new(self, name: str) -> HashedWriter:
        """Opens another file."""
        writer = self._to_close.enter_context(HashedWriter(self._folder / name, self._threads))
        self._writers.append(writer)
        return writer

    def write_arrays(self, name: str, arrays: dict[str, NDArray[Any]]) -> FileRecord:
        """Writes another file, of these arrays."""
        writer = self.new(name)
        for array in arrays.values():
            writer.write(np.ascontiguousarray(array))
        return writer.record([record_of_array(name, array) for name, array in arrays.items()])

    def sync(self) -> None:
        """Writes all files to the disk."""
        for writer in self._writers:
            writer.sync()


def _write(files: _Files, store: Store, state: ReplayState[ItemState], held: HeldPages) -> Manifest:
    renumber = _Renumbering(held.numbers, store.num_pages, store.arrays.page_rows)
    records, index = _write_rows(files, store, held, renumber)
    index = {"pages": renumber.words(held.words), **index}
    records.append(files.write_arrays("index.bin", index))
    tables = []
    for number, table in enumerate(state.tables):
        name = f"items-{number}.bin"
        records.append(files.write_arrays(name, _items_of(table, renumber)))
        tables.append(_entry_of(table, name))
    return Manifest(
        state.signature.to_json(),
        state.capacity,
        store.arrays.page_rows,
        state.next_key,
        state.next_episode,
        tuple(sorted(state.given)),
        {table: dict(values) for table, values in state.paddings.items()},
        generator_record(state.generator),
        tuple(tables),
        tuple(records),
        state.skipped_keys,
    )


class _Renumbering:
    """From the numbers of pages and rows to those in the checkpoint."""

    def __init__(self, pages: NDArray[np.int64], num_pages: int, page_rows: int) -> None:
        self._page_rows = page_rows
        # One entry more, for links that lead nowhere.
        self._numbers = np.full(num_pages + 1, -1, np.int64)
        self._numbers[pages] = np.arange(len(pages))
        # How far the rows of each page move; items that left (DEAD) and their like stay as they are.
        self._moves = np.zeros(num_pages + 1, np.int64)
        self._moves[pages] = (np.arange(len(pages)) - pages) * page_rows
        self._is_needed = bool(self._moves.any())

    def rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Returns the new numbers of rows of these pages."""
        if not self._is_needed:
            return rows
        pages = np.minimum(rows // rows.dtype.type(self._page_rows), rows.dtype.type(len(self._moves) - 1))
        # Unsigned numbers go round, so they move down too.
        renumbered: NDArray[Any] = rows + self._moves.astype(rows.dtype).take(pages)
        return renumbered

    def words(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns page words with the new numbers, without derived words."""
        renumbered = words.copy()
        renumbered[:, [REFERENCES, LINKED_ROWS]] = 0
        for word in (NEXT, PREVIOUS):
            renumbered[:, word] = self._numbers[words[:, word]]
        return renumbered


def _write_rows(
    files: _Files, store: Store, held: HeldPages, renumber: _Renumbering
) -> tuple[list[FileRecord], dict[str, NDArray[Any]]]:
    """Writes the values of all rows, page after page, and their words; returns their records and metadata."""
    words = held.words
    arrays = [("steps", store.arrays.steps), *store.row_arrays.items()]
    total = int((words[:, USED] * words[:, LANES]).sum())
    links = _Links(store, held.numbers, words)
    names = ["steps.bin", *(f"rows-{number}.bin" for number in range(len(store.row_arrays)))]
    writers = [files.new(name) for name in names]
    for first, stop in _groups(store, len(words)):
        ranges = used_ranges(held.numbers[first:stop], words[first:stop], store.arrays.page_rows)
        for (_, array), writer in zip(arrays[1:], writers[1:], strict=True):
            for start, end in ranges.tolist():
                writer.write(array[start:end])
        writers[0].write(links.steps_of(ranges))
        links.add_metadata(first, stop)
        for writer in writers:
            writer.drain()
        store.check_rows_were_ours()
        held.release(stop)
    records = [
        writer.record([record_of_array(name, array, total)])
        for (name, array), writer in zip(arrays, writers, strict=True)
    ]
    return records, links.index(renumber)


def _groups(store: Store, count: int) -> Iterator[tuple[int, int]]:
    pages = max(1, _GROUP_BYTES // (store.row_nbytes * store.arrays.page_rows))
    for first in range(0, count, pages):
        yield first, min(count, first + pages)


class _Links:
    """Metadata of the rows in the saved pages: links to final rows, episodes, versions.

    It is read without the lock, as of the copy of the pages' words. Of the rows that were committed then, one thing may
    change: the newest of a lane may turn out to be the last of its episode. Its final row came later and is not saved,
    so the row is saved as it was, without its link.
    """

    def __init__(self, store: Store, pages: NDArray[np.int64], words: NDArray[np.int64]) -> None:
        self._arrays, self._versions = store.arrays, store.versions
        self._pages, self._words = pages, words
        self._saved = SavedRows(store, pages, words)
        self._last = [np.zeros(0, np.int64)]
        self._final = [np.zeros(0, np.int64)]
        self._beside = [np.zeros(0, np.int64)]
        self._start_rows = [np.zeros(0, np.uint32)]
        self._start_ids = [np.zeros(0, np.int64)]
        self._stamps = [np.zeros(0, np.int32)]

    def steps_of(self, ranges: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Returns the words of the rows in these ranges."""
        steps, links = self._arrays.steps, self._arrays.links
        copy = np.concatenate([np.zeros(0, np.uint32), *(steps[start:end] for start, end in ranges.tolist())])
        linked = np.flatnonzero(copy & np.uint32(LINKED))
        last = _rows_at(linked, ranges)
        final, saved = self._saved.final_rows(last)
        copy[linked[~saved]] &= ~np.uint32(LINKED)
        self._last.append(last[saved])
        self._final.append(final[saved])
        finals = flagged_rows(steps, ranges, FINAL)
        self._beside.append(finals[links[finals] != NO_LINK])
        return copy

    def add_metadata(self, first: int, stop: int) -> None:
        """Copies the episodes and versions of the saved pages `first:stop`."""
        arrays = self._arrays
        words_of_pages = self._words[first:stop]
        for page, words, stamps in zip(
            self._pages[first:stop].tolist(),
            words_of_pages.tolist(),
            versions_in(words_of_pages).tolist(),
            strict=True,
        ):
            begin = page * arrays.page_rows
            self._start_rows.append(arrays.start_rows[begin : begin + words[STARTS]].copy())
            self._start_ids.append(arrays.start_ids[begin : begin + words[STARTS]].copy())
            self._stamps.append(self._versions[begin : begin + stamps].copy())

    def index(self, renumber: _Renumbering) -> dict[str, NDArray[Any]]:
        """Returns all metadata as arrays."""
        last, final = np.concatenate(self._last), np.concatenate(self._final)
        beside = np.concatenate(self._beside)
        return {
            "start_rows": np.concatenate(self._start_rows),
            "start_ids": np.concatenate(self._start_ids),
            "versions": np.concatenate(self._stamps),
            "links": np.stack([renumber.rows(last), renumber.rows(final)]),
            "orphans": renumber.rows(beside[~np.isin(beside, final)]),
        }


def _rows_at(places: NDArray[np.int64], ranges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the rows at these indexes, counted over the ranges one after another."""
    before = np.concatenate([[0], np.cumsum(ranges[:, 1] - ranges[:, 0])])
    range_of = np.searchsorted(before, places, side="right") - 1
    rows: NDArray[np.int64] = ranges[range_of, 0] + places - before[range_of]
    return rows


def _items_of(table: TableState[ItemState], renumber: _Renumbering) -> dict[str, NDArray[Any]]:
    arrays = table.items.arrays
    rows = arrays[RECORDS][:, RECORD_ROW]
    rows[:] = renumber.rows(rows)  # They are a copy.
    return arrays


def _entry_of(table: TableState[ItemState], file: str) -> TableEntry:
    return TableEntry(*record_fields(table.items), table_to_json(table.table), table.counts, SCRATCH, file)
