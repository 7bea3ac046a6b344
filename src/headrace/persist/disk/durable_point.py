"""The durable point: the state to which a store on disk returns after the machine has failed.

The system writes mapped memory to the disk at any time and in any order. So after a failure of the machine the files
hold some changes and lack others. A durable flush makes a state that survives:

    durable      a copy of the items, of the pages' words and of the links to final rows, with a checksum. The rows are
                 synced first. Then this file is written beside the last one, synced, and renamed
    released     for each page, the number of the latest point that has lost it

Rows stay where they are. A page of the point is not used again before there is a later point (`store.pages.retained`),
and committed rows change only in two flags and their links (`rollback.restore_rows`). When disk space is short, pages
that no item holds any more are given up: `released` says so, on the disk, before one of them is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.checked_arrays import read_checked_arrays, write_checked_arrays
from headrace.persist.disk.durable_ring import DurableRing
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.mapped_file import mapped_file
from headrace.persist.disk.writer_counts import WriterCounts
from headrace.persist.final_rows import SavedRows
from headrace.persist.items_record import ItemsRecord, record_fields
from headrace.store.layout import LINKED, LINKED_ROWS
from headrace.store.memory.arena import Arena
from headrace.store.pages.ranges import flagged_rows, used_ranges
from headrace.store.pages.retained import RetainedPages
from headrace.store.store import Store
from headrace.tables.item_state import PER_ITEM, ItemState
from headrace.tables.items.layout import RING_WORDS, RING_WORDS_OF_0_1

DURABLE, RELEASED = "durable", "released"
_FORMAT, _VERSION = "headrace durable point", 1
_NO_WRITERS = np.zeros((0, 0), np.int64)


class _Table(ItemsRecord, frozen=True, forbid_unknown_fields=True):
    name: str


class _Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    next_key: int
    next_episode: int
    given: tuple[str, ...]
    tables: tuple[_Table, ...]


@dataclass(frozen=True)
class DurablePoint:
    """The state of one instant, without the rows themselves.

    Attributes:
        number: points that are made later have higher ones.
        next_key, next_episode, given: of the header.
        tables: the items of each table, by its name.
        pages: int64[n], those in use, rising.
        words: int64[n, PAGE_WORDS], of these pages.
        links: int64[2, m], the last rows of episodes and their final rows in other pages.
        is_lost: bool[n], pages that were given up since.
        writers: of `WriterCounts.state`.
    """

    number: int
    next_key: int
    next_episode: int
    given: frozenset[str]
    tables: Mapping[str, ItemState]
    pages: NDArray[np.int64]
    words: NDArray[np.int64]
    links: NDArray[np.int64]
    is_lost: NDArray[np.bool_]
    writers: NDArray[np.int64]


class DurablePoints:
    """The durable points of a store, one after another. Nothing is written before the first.

    Args:
        folder: of the store.
        store: its rows.
    """

    def __init__(self, folder: Path, store: Store) -> None:
        self._path = folder / DURABLE
        self._released_path = folder / RELEASED
        self._store = store
        self._number = 0
        self._arena: Arena | None = None

    @property
    def is_begun(self) -> bool:
        """Whether the store was ever made durable."""
        return self._arena is not None

    def found(self) -> DurablePoint | None:
        """Reads the point on the disk; returns None without one.

        Raises:
            CheckpointError: it is damaged.
        """
        if not self._path.exists():
            return None
        record, arrays = read_checked_arrays(self._path, _Point, _FORMAT, _VERSION)
        if not self._released_path.is_file():
            raise CheckpointError(
                f"{self._released_path}: expected a file beside {self._path.name}; it is missing"
            )
        released = self._open_released()
        self._number = max(record.number, int(released.max(initial=0)))
        pages = arrays["pages"]
        return DurablePoint(
            record.number,
            record.next_key,
            record.next_episode,
            frozenset(record.given),
            {table.name: _items_of(table, number, arrays) for number, table in enumerate(record.tables)},
            pages,
            arrays["words"],
            arrays["links"],
            released[pages] >= record.number,
            arrays.get("writers", _NO_WRITERS),
        )

    def begin(self, pages: Sequence[int] | NDArray[np.int64] = ()) -> None:
        """Retains the pages of the present point.

        Raises:
            StoreFull: the disk is full.
        """
        if self._store.retained is None:
            self._open_released()
            retained = RetainedPages(self._store.num_pages, self._give_up)
            retained.retain(np.asarray(pages, np.int64))
            self._store.retained = retained

    def _open_released(self) -> NDArray[np.int64]:
        if self._arena is None:
            self._arena = mapped_file(self._released_path, 8 * self._store.num_pages)
        released: NDArray[np.int64] = self._arena.array(0, (self._store.num_pages,), np.int64)  # type: ignore[assignment]
        return released

    def _give_up(self, pages: Sequence[int]) -> None:
        """Records that these pages belong to no point so far, nor to one that is being written."""
        assert self._arena is not None
        self._open_released()[list(pages)] = self._number
        self._arena.sync()

    def take(
        self,
        rings: Mapping[str, DurableRing],
        buffers: Mapping[str, Any],
        header: DiskHeader,
        writers: WriterCounts | None,
    ) -> DurablePoint:
        """Takes the point of this instant, without links, and retains its pages. The lock must be held.

        Args:
            rings: by the names of their tables.
            buffers: by the same names, from `buffers_for_copy`.
            header: of the store.
            writers: of clients; None: there never was one.
        """
        self._number += 1
        tables = {name: ring.copy(buffers[name]) for name, ring in rings.items()}
        pages, words = self._store.retain_pages()
        return DurablePoint(
            self._number,
            header.next_key,
            int(header.next_episode[0]),
            header.given,
            tables,
            pages,
            words,
            np.zeros((2, 0), np.int64),
            np.zeros(len(pages), np.bool_),
            _NO_WRITERS if writers is None else writers.state(),
        )

    def write(self, point: DurablePoint) -> None:
        """Writes a point to the disk after its rows were synced; needs no lock."""
        tables = tuple(_Table(*record_fields(state), name) for name, state in point.tables.items())
        given = tuple(sorted(point.given))
        record = _Point(point.number, point.next_key, point.next_episode, given, tables)
        arrays = {"pages": point.pages, "words": point.words, "links": _links_of(self._store, point)}
        if len(point.writers):
            arrays["writers"] = point.writers
        for number, state in enumerate(point.tables.values()):
            arrays.update({f"{number}:{name}": array for name, array in state.arrays.items()})
        write_checked_arrays(self._path, record, arrays, _FORMAT, _VERSION)

    def close(self) -> None:
        """Closes the descriptor."""
        if self._arena is not None:
            self._arena.close()


def _items_of(table: _Table, number: int, arrays: Mapping[str, NDArray[Any]]) -> ItemState:
    if len(table.ring) not in (RING_WORDS, RING_WORDS_OF_0_1):
        raise CheckpointError(f"expected {RING_WORDS} words of table {table.name!r}, got {len(table.ring)}")
    return table.state(
        {name: arrays[f"{number}:{name}"] for name in PER_ITEM if f"{number}:{name}" in arrays}
    )


def _links_of(store: Store, point: DurablePoint) -> NDArray[np.int64]:
    """Returns int64[2, m]: the links to final rows of the point's rows, without those that came later."""
    has_links = point.words[:, LINKED_ROWS] > 0
    ranges = used_ranges(point.pages[has_links], point.words[has_links], store.arrays.page_rows)
    last = flagged_rows(store.arrays.steps, ranges, LINKED)
    final, is_saved = SavedRows(store, point.pages, point.words).final_rows(last)
    return np.stack([last[is_saved], final[is_saved]])
