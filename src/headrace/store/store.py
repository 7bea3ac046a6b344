"""Where steps live: the arrays of rows in an arena, and the pages that they are cut into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed
from headrace.spec import Signature
from headrace.statistics import StoreStatistics
from headrace.store.commit import Lanes
from headrace.store.layout import (
    LANES,
    MAX_ROWS,
    USED,
    LaneArrays,
    StoreArrays,
    columns,
    page_spans,
    plan_index,
    plan_rows,
    reserved_pages,
    rows_of_a_page,
)
from headrace.store.memory.arena import Arena
from headrace.store.memory.out_of_space import out_of_space
from headrace.store.pages.held_array import held_array
from headrace.store.pages.page_pool import PagePool
from headrace.store.records import stored_nbytes
from headrace.store.staging import Stage


class Store(PagePool):
    """The pages that hold the steps of one signature; see `PagePool`. Each step is written once.

    Args:
        signature: the columns of one step.
        capacity: number of rows that can be stored at least; None: it grows up to the limit of the
            machine's memory.
        make_arena: where the values of rows live, called with the number of bytes: `Arena.private_sparse` (until
            `share`), `Arena.shared` (other processes of this machine can write and read in place), or a file's.
        make_index: where the index lives, called with the number of bytes. No other process may map it.
        page_rows: rows of one page; by default about 1 MiB of them.
        num_pages: pages to reserve; by default as many as the capacity needs.

    Attributes:
        columns: each column's array, `dtype[rows, ...]`; small ones stand side by side in records (`store.records`).
        records: uint8[...], these records as bytes.
        is_on_disk: whether rows live in a file, which another process may open after this one has closed it.
        arena, layout: the values of rows, and where their arrays lie. `share` gives away this arena alone.
        index, index_layout: the arrays about rows (`store.layout`), and where they lie.
        row_arrays: the arrays of `arena`: the data of a row that is saved beside its word.

    >>> store = Store(Signature.like({"reward": np.float32(0)}), capacity=1000)
    >>> page = store.acquire(lanes=4)
    >>> store.arrays.page_rows, store.statistics().pages
    (31, 1)
    """

    # Rules: replay C2

    def __init__(
        self,
        signature: Signature,
        capacity: int | None = None,
        *,
        make_arena: Callable[[int], Arena] = Arena.private_sparse,
        make_index: Callable[[int], Arena] = Arena.private_sparse,
        page_rows: int | None = None,
        num_pages: int | None = None,
    ) -> None:
        if capacity is not None and not 1 <= capacity <= MAX_ROWS:
            raise ValueError(f"capacity: expected between 1 and {MAX_ROWS} steps, got {capacity}")
        page_rows = page_rows or rows_of_a_page(signature.nbytes, capacity)
        num_pages = num_pages or reserved_pages(capacity, signature.nbytes, page_rows)
        if num_pages > MAX_ROWS // page_rows:
            raise ValueError(f"expected at most {MAX_ROWS} rows, got {num_pages} pages of {page_rows} rows")
        self.signature = signature
        self.layout = plan_rows(signature, num_pages, page_rows)
        self.index_layout = plan_index(num_pages, page_rows)
        try:
            self.arena = make_arena(self.layout.nbytes)
            self.index = make_index(self.index_layout.nbytes)
        except (OSError, OverflowError) as error:
            nbytes = self.layout.nbytes + self.index_layout.nbytes
            raise out_of_space(f"{nbytes} bytes, reserved for {num_pages * page_rows} rows", error) from error
        index: dict[str, NDArray[Any]] = self.index_layout.arrays(self.index)
        versions = index.pop("versions")
        super().__init__(
            capacity,
            num_pages,
            StoreArrays(**index, page_rows=page_rows),
            versions,
            stored_nbytes(signature) + index["steps"].itemsize,
        )
        self._map_rows()
        self.is_on_disk = self.arena.is_on_disk
        self._begin_index()
        self.next_episode = np.zeros(1, np.int64)
        self._at_fork: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def _map_rows(self) -> None:
        self.row_arrays: dict[str, NDArray[Any]] = self.layout.arrays(self.arena)
        self.columns: dict[str, NDArray[Any]] = columns(self.row_arrays, self.signature)
        self.records: NDArray[np.uint8] = self.row_arrays["records"].reshape(-1).view(np.uint8)
        self._memory: NDArray[Any] = self.arena.array(0, (self.layout.nbytes,), np.uint8)
        self._row_spans = self.layout.spans()
        for name, array in self.row_arrays.items():
            self.arena.advise_large_pages(self.layout.places[name].offset, array.nbytes)

    def _begin_index(self) -> None:
        places, freed = self.index_layout.places, self.arrays.freed
        try:
            self.index.reserve(places["freed"].offset, freed.nbytes)
        except OSError as error:
            self._close_arenas()
            raise out_of_space(f"{freed.nbytes} bytes on the disk to begin with", error) from error
        # The other arrays are written sparsely, so large pages would take memory that is never used.
        self.index.advise_large_pages(places["steps"].offset, self.arrays.steps.nbytes)

    def lanes(self, arrays: LaneArrays, stage: Stage | None = None) -> Lanes:
        """Returns lanes whose steps become part of this store; the staged columns of a step are written before it."""
        staged = (None, None) if stage is None else (stage.memory, stage.fields)
        return Lanes(
            self.pins, self.next_episode, self.versions, self._memory, self._row_spans, arrays, *staged
        )

    # ---- disk space ------------------------------------------------------------------------------------------------

    def reserve_pages(self, count: int) -> None:
        """Takes the disk space of the first `count` pages again.

        Raises:
            StoreFull: the disk is full.
        """
        for page in range(count):
            self._reserve_page(page)

    def _reserve_page(self, page: int) -> None:
        """Takes the disk space of a page; does nothing for memory."""
        if not self.is_on_disk:
            return
        try:
            for arena, layout in ((self.index, self.index_layout), (self.arena, self.layout)):
                for begin, end in page_spans(layout, self.num_pages, page).tolist():
                    arena.reserve(begin, end - begin)
        except OSError as error:
            raise out_of_space(f"another page of {self.arrays.page_rows} rows on the disk", error) from error

    # ---- views -----------------------------------------------------------------------------------------------------

    def check_rows_were_ours(self) -> None:
        """Refuses rows that were copied without the lock from a file with a new owner; called after the copy.

        Raises:
            Closed: the file was closed meanwhile, and its next owner may write to it.
        """
        if self.is_closed and self.is_on_disk:
            raise Closed("the replay was closed while rows were copied")

    def hold(self, pages: Sequence[int], array: NDArray[Any]) -> NDArray[Any]:
        """Returns the same memory, read-only, and holds these pages until the last array over it is garbage."""
        with self.lock:
            for page in pages:
                self.pins.pin_page(page, 1)
        held = held_array(array, partial(self.drop, tuple(pages)))
        held.flags.writeable = False
        return held

    def block(self, page: int, column: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Returns a zero-copy view of vector steps `start:stop` of a page: `dtype[T, N, ...]`, read-only.

        The page is neither used again nor freed while the view, or any array made from it, is alive.
        """
        words = self.arrays.pages[page]
        lanes, used = int(words[LANES]), int(words[USED])
        stop = used if stop is None else min(stop, used)
        first = page * self.arrays.page_rows
        rows = self.columns[column][first + start * lanes : first + stop * lanes]
        return self.hold([page], rows.reshape(stop - start, lanes, *rows.shape[1:]))

    # ---- other processes -------------------------------------------------------------------------------------------

    def share(self) -> int:
        """Makes the values of rows shared memory; returns its descriptor, for processes that map it.

        A process that has it can change the values of all rows, and nothing else of the store. `plan_rows` gives their
        layout.

        A write of another thread without the lock may be lost meanwhile. So that thread compares `arena.moved`, under
        the lock, with its value before the write (test_a_step_written_while_the_rows_move_is_whole).

        Raises:
            StoreFull: there is no memory for the copy; the store goes on as before.
        """
        try:
            self.arena.share(self.lock, self._written)
        except OSError as error:
            raise out_of_space("a copy of the rows in shared memory", error) from error
        return self.arena.descriptor

    def _written(self) -> NDArray[np.int64]:
        """Returns int64[arrays, 2]: the bytes of the arena that may have been written."""
        return page_spans(self.layout, self.num_pages, 0, self._never_used)

    def make_private(self) -> None:
        """Keeps later writes in this process: they reach neither files nor other processes."""
        for arena in (self.arena, self.index):
            arena.make_private()

    def before_fork(self) -> None:
        """Copies the pages' words, which the parent may change before the child has its own memory. Needs the lock."""
        freed = self.arrays.freed
        self._at_fork = self.arrays.pages[: self._never_used].copy(), freed[: freed[-1]].copy()

    def after_fork_in_parent(self) -> None:
        """Drops the copy of `before_fork`."""
        self._at_fork = None

    def after_fork_in_child(self) -> None:
        """Makes the memory private, as it was at the fork. Rows are copied when they are written."""
        self.make_private()
        if self._at_fork is not None:
            pages, freed = self._at_fork
            self.arrays.pages[: len(pages)] = pages
            self.arrays.freed[: len(freed)] = freed
            self.arrays.freed[-1] = len(freed)
        self._at_fork = None
        self.retained = self.page_hashes = None
        self._readers.forget()

    # ---- sizes -----------------------------------------------------------------------------------------------------

    def statistics(self) -> StoreStatistics:
        """Returns the contents of the store now."""
        with self.lock:
            self.reclaim()
            rows, free = self._rows_held(), self._num_free()
            return StoreStatistics(
                rows=rows,
                capacity=self.capacity,
                pages=self.pages_taken - free,
                free_pages=free,
                bytes=rows * self.row_nbytes,
                row_bytes=self.row_nbytes,
            )

    def close(self) -> None:
        """Closes the store; its memory is freed when the last array over it is garbage.

        From here on nothing is written any more: a file on disk may have another owner.
        """
        self.is_closed = True
        self._close_arenas()

    def _close_arenas(self) -> None:
        for arena in (self.arena, self.index):
            arena.close()
