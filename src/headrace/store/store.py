"""Where steps live: pages of an arena, taken by writers, held by items, readers and views, used again when free."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.clock import SYSTEM_CLOCK
from headrace.errors import Closed, StoreFull
from headrace.spec import Signature
from headrace.statistics import StoreStatistics
from headrace.store.commit import Lanes
from headrace.store.layout import (
    LANES,
    MAX_ROWS,
    NEXT,
    PREVIOUS,
    REFERENCES,
    USED,
    VERSIONED,
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
from headrace.store.pages.pinning import Pins
from headrace.store.pages.retained import RetainedPages
from headrace.store.records import stored_nbytes
from headrace.store.staging import Stage
from headrace.store.window import Window
from headrace.waits import Wait

# A reader may end between a look at it and the wait for it: then the next look is so far away.
_LOOK_SECONDS = 0.05


class PageHolder(Protocol):
    """Holds pages for a while. As long as it does, more rows than the capacity may be taken."""

    @property
    def extra_rows(self) -> int:
        """Rows that may be taken beyond the capacity."""


class Store:
    """The pages that hold the steps of one signature. Each step is written once, whatever reads it.

    Args:
        signature: the columns of one step.
        capacity: number of rows that can be stored at least; None grows as rows need it, up to what the
            machine's memory could hold.
        make_arena: where the values of rows live, called with the number of bytes: `Arena.private_sparse` (until
            `share`), `Arena.shared` (other processes of this machine can write and read in place), or a file's.
        make_index: where the index lives, called with the number of bytes. No other process may map it.
        page_rows: rows of one page; by default about 1 MiB of them.
        num_pages: how many pages to reserve; by default what the capacity needs.

    Attributes:
        columns: each column's array, `dtype[rows, ...]`; small ones stand side by side in records (`store.records`).
        records: uint8[...], those records as bytes.
        lock: held while pages or references change.
        is_on_disk: whether rows live in a file, which another process may open when this one has closed it.
        arena, layout: the values of rows, and where their arrays lie. `share` gives away this arena alone.
        index, index_layout: the arrays that tell about rows (`store.layout`), and where they lie.
        row_arrays: the arrays of `arena`, whole: what is saved of a row beside its word.
        window: finds the rows that follow one another.
        pins: counts the references to pages.
        who_holds: tells what holds the rows, for the message of a full store.
        retained: pages that are not used again, since a state on the disk needs them; None for memory.
        page_hashes: uint64[pages], 0 for a page that was taken since it was hashed; None for memory.

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
        self.signature = signature
        self.capacity = capacity
        self.lock = threading.RLock()
        self.who_holds: Callable[[], str] = lambda: ""
        page_rows = page_rows or rows_of_a_page(signature.nbytes, capacity)
        num_pages = num_pages or reserved_pages(capacity, signature.nbytes, page_rows)
        if num_pages > MAX_ROWS // page_rows:
            raise ValueError(f"expected at most {MAX_ROWS} rows, got {num_pages} pages of {page_rows} rows")
        self.layout = plan_rows(signature, num_pages, page_rows)
        self.index_layout = plan_index(num_pages, page_rows)
        try:
            self.arena = make_arena(self.layout.nbytes)
            self.index = make_index(self.index_layout.nbytes)
        except OSError as error:
            nbytes = self.layout.nbytes + self.index_layout.nbytes
            raise out_of_space(f"{nbytes} bytes, reserved for {num_pages * page_rows} rows", error) from error
        self._map(page_rows)
        self.num_pages = num_pages
        self.is_on_disk = self.arena.is_on_disk
        self.is_closed = False
        try:
            self.index.reserve(self.index_layout.places["freed"][0], self.arrays.freed.nbytes)
        except OSError as error:
            self._close_arenas()
            raise out_of_space(
                f"{self.arrays.freed.nbytes} bytes on the disk to begin with", error
            ) from error
        # The other arrays are written here and there, so large pages would take memory that is never used.
        self.index.advise_large_pages(self.index_layout.places["steps"][0], self.arrays.steps.nbytes)
        for name, array in self.row_arrays.items():
            self.arena.advise_large_pages(self.layout.places[name][0], array.nbytes)
        self._begin_empty()

    def _map(self, page_rows: int) -> None:
        index: dict[str, NDArray[Any]] = self.index_layout.arrays(self.index)
        self.versions: NDArray[np.int32] = index.pop("versions")
        self.arrays = StoreArrays(**index, page_rows=page_rows)
        self.window = Window(self.arrays)
        self.pins = Pins(self.window)
        self.row_arrays: dict[str, NDArray[Any]] = self.layout.arrays(self.arena)
        self.columns: dict[str, NDArray[Any]] = columns(self.row_arrays, self.signature)
        self.records: NDArray[np.uint8] = self.row_arrays["records"].reshape(-1).view(np.uint8)
        self._memory: NDArray[Any] = self.arena.array(0, (self.layout.nbytes,), np.uint8)
        self._row_spans = self.layout.spans()

    def _begin_empty(self) -> None:
        # A page is at most 1/32 of the capacity. The oldest page of what is held may be part free and the newest part
        # filled, so two pages more are allowed than the rows need.
        self._row_budget = MAX_ROWS if self.capacity is None else self.capacity + 2 * self.arrays.page_rows
        self._charged = 0
        self._charges = np.zeros(self.num_pages, np.int32)
        self._never_used = 0
        self._free: list[int] = []
        self._limbo: deque[tuple[int, int]] = deque()
        self._readers: dict[int, threading.Thread] = {}
        self._reader_ended = threading.Condition(self.lock)
        self._waits_for_readers = 0
        self._next_reader = 0
        self._dropped: deque[int] = deque()
        self.retained: RetainedPages | None = None
        self.page_hashes: NDArray[np.uint64] | None = None
        self._no_longer_allowed: deque[int] = deque()
        self._holders: weakref.WeakSet[PageHolder] = weakref.WeakSet()
        self.next_episode = np.zeros(1, np.int64)
        self._at_fork: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def lanes(self, arrays: LaneArrays, stage: Stage | None = None) -> Lanes:
        """Lanes that become part of this store step by step; what is staged is written before each."""
        staged = (None, None) if stage is None else (stage.memory, stage.fields)
        return Lanes(
            self.pins, self.next_episode, self.versions, self._memory, self._row_spans, arrays, *staged
        )

    def adopt(self, held: NDArray[np.bool_]) -> None:
        """Go on with pages that came from a file and were mended (`store.pages.recovery`); no page may be in use yet.

        Args:
            held: bool[n], of the first n pages; nothing was ever stored in those after them.
        """
        words, page_rows = self.arrays.pages[: len(held)], self.arrays.page_rows
        lanes = np.maximum(words[:, LANES], 1)
        self._charges[: len(held)] = np.where(held, lanes * (page_rows // lanes), 0)
        self._charged = int(self._charges.sum())
        self._never_used = len(held)
        free = np.flatnonzero(~held)[::-1].tolist()
        retained = self.retained
        # What nothing holds now may still be rows of the durable point.
        self._free = [page for page in free if retained is None or not retained.takes(page)]

    # ---- pages -----------------------------------------------------------------------------------------------------

    def acquire(self, lanes: int, previous: int = -1) -> int:
        """Take a page for a block of `lanes`, as the continuation of page `previous`. It has one reference: yours.

        Raises:
            StoreFull: no page is free; nothing changed.
            Closed: the store is closed.
        """
        with self.lock:
            if self.is_closed:
                raise Closed("the replay is closed")
            self.reclaim()
            charge = lanes * (self.arrays.page_rows // lanes)
            self._wait_for_room(charge, 1)
            page = self._take_page()
            self._charged += charge
            self._charges[page] = charge
            if self.page_hashes is not None:
                self.page_hashes[page] = 0
            words = self.arrays.pages[page]
            if words[VERSIONED]:
                self.versions[page * self.arrays.page_rows : (page + 1) * self.arrays.page_rows] = 0
            words[:] = 0
            words[LANES], words[REFERENCES], words[NEXT], words[PREVIOUS] = lanes, 1, -1, previous
            if previous >= 0:
                self.arrays.pages[previous, NEXT] = page
            return page

    def require(self, lanes: Sequence[int]) -> None:
        """See to it that pages for blocks of these lanes can be taken, on a disk that is full meanwhile too.

        The lock must be held, and held on until they are taken.

        Raises:
            StoreFull: they cannot; nothing changed.
        """
        if not lanes:
            return
        rows = self.arrays.page_rows
        charge = sum(each * (rows // each) for each in lanes)
        self.reclaim()
        self._wait_for_room(charge, len(lanes))
        # `_take_page` gives up the pages that wait when nothing else is left.
        waiting = 0 if self.retained is None else len(self.retained)
        for page in range(self._never_used, self._never_used + len(lanes) - len(self._free) - waiting):
            self._reserve(page)

    def allow(self, pages: int) -> None:
        """Raises (or, negative, lowers again) the number of pages that may be taken beyond the capacity.

        For what is part filled beyond the two pages that every store has: lanes that take several pages side by side,
        pages that are leased ahead.
        """
        with self.lock:
            if self.capacity is not None:
                self._row_budget += pages * self.arrays.page_rows

    def release(self, page: int) -> None:
        """Give one reference to a page back."""
        with self.lock:
            if not self.is_closed:
                self.pins.pin_page(page, -1)

    def drop(self, pages: Sequence[int], allowed: int = 0) -> None:
        """Give references back from a finalizer, which may run anywhere, also under the lock: they go a turn later.

        Args:
            pages: one reference to each.
            allowed: so many pages fewer may be taken from then on, as with `allow(-allowed)`.
        """
        if allowed:
            self._no_longer_allowed.append(allowed)
        self._dropped.extend(pages)

    @property
    def has_dropped(self) -> bool:
        """Whether references wait to be given back that finalizers brought."""
        return bool(self._dropped)

    def _has_room(self, charge: int, pages: int = 1) -> bool:
        extra = sum(held.extra_rows for held in self._holders) if self._holders else 0
        within = self._charged + charge <= self._row_budget + extra
        waiting = 0 if self.retained is None else len(self.retained)
        return within and len(self._free) + waiting + self.num_pages - self._never_used >= pages

    def _wait_for_room(self, charge: int, pages: int) -> None:
        wait: Wait | None = None
        while not self._has_room(charge, pages):
            if not self._wait_for_readers():
                raise StoreFull(self._full_message())
            wait = wait or Wait(SYSTEM_CLOCK, None, self._reading_message)
            # The lock is held more than once, in the middle of an append.
            wait.look(None)
            self.reclaim()

    def _reading_message(self, seconds: float) -> str:
        names = ", ".join(sorted({thread.name for thread in self._readers.values()}))
        return (
            f"an append has waited {seconds:.3g} s for a page of rows that other threads ({names}) are still "
            "copying. Wait for these threads, or give the store a larger capacity"
        )

    def _wait_for_readers(self) -> bool:
        """Whether pages are free but for readers in other threads, after waiting for one of these to end.

        A reader copies one batch, so that is a matter of milliseconds. tests/store/test_store.py shows it.
        """
        if not self._limbo or not self._readers:
            return False
        self._forget_dead_readers()
        if threading.current_thread() in self._readers.values():
            return False
        self._waits_for_readers += 1
        try:
            self._reader_ended.wait(_LOOK_SECONDS)
        finally:
            self._waits_for_readers -= 1
        return True

    def _forget_dead_readers(self) -> None:
        """Close the guards of threads that have ended: something may still keep what they were doing."""
        for number, thread in list(self._readers.items()):
            if not thread.is_alive():
                self._readers.pop(number, None)

    def _take_page(self) -> int:
        if self._free:
            return self._free.pop()
        retained = self.retained
        if retained is None or not retained:
            return self._take_new()
        if self._never_used < self.num_pages and not retained.is_worth_giving_up(self._never_used):
            with suppress(StoreFull):
                return self._take_new()
        try:
            self._free += retained.give_up()
        except OSError as error:
            raise out_of_space("a note on the disk of which pages are used again", error) from error
        return self._free.pop()

    def _take_new(self) -> int:
        self._reserve(self._never_used)
        self._never_used += 1
        return self._never_used - 1

    def reserve_pages(self, count: int) -> None:
        """Take the room on the disk of the first `count` pages again.

        Raises:
            StoreFull: there is none.
        """
        for page in range(count):
            self._reserve(page)

    def _reserve(self, page: int) -> None:
        """Take the room of a page on the disk; the other places have nothing to do."""
        if not self.is_on_disk:
            return
        try:
            for arena, layout in ((self.index, self.index_layout), (self.arena, self.layout)):
                for begin, end in page_spans(layout, self.num_pages, page).tolist():
                    arena.reserve(begin, end - begin)
        except OSError as error:
            raise out_of_space(f"another page of {self.arrays.page_rows} rows on the disk", error) from error

    def reclaim(self) -> None:
        """Move pages without references to the free list, those being read not before their readers are done.

        From here on no window leads into them. The lock must be held.

        A page is looked at here for the first time after it was freed, so every reader that may still copy from it
        has begun; it waits for all of them. tests/store/test_store.py::test_page_waits_for_its_readers shows it.
        """
        freed = self.arrays.freed
        if self.is_closed or not (freed[-1] or self._limbo or self._dropped or self._no_longer_allowed):
            return
        while self._no_longer_allowed:
            self.allow(-self._no_longer_allowed.popleft())
        # Ctrl-C may come after any call, so there is none between the two halves of a change.
        while self._dropped:
            page, pins = self._dropped[0], self.pins
            del self._dropped[0]
            pins.pin_page(page, -1)
        self.pins.take_freed()
        taken = [(self._next_reader, page) for page in freed[: freed[-1]].tolist()]
        self._limbo += taken
        freed[-1] = 0
        # A copy, in one step: readers end without the lock.
        oldest_reader = min(list(self._readers), default=self._next_reader)
        while self._limbo and self._limbo[0][0] <= oldest_reader:
            page = self._limbo[0][1]
            charge = int(self._charges[page])
            del self._limbo[0]
            self._charged -= charge
            if self.retained is None:
                self._free += [page]
            elif not self.retained.takes(page):
                self._free.append(page)

    def _full_message(self) -> str:
        statistics = self.statistics()
        return (
            f"the store is full: capacity {self.capacity} steps, {statistics.rows} rows held "
            f"({statistics.bytes} bytes); room is given back {self.arrays.page_rows} rows at a time, when nothing "
            f"holds any of them. {self.who_holds()}"
            "Give it a larger capacity, let items leave (a smaller max_size, max_times_sampled, delete), or close "
            "writers that are not used any more"
        )

    def retain_pages(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Retain every page that is in use. The lock must be held.

        Returns:
            The pages, rising, and a copy of their words.
        """
        assert self.retained is not None
        self.reclaim()
        words = self.arrays.pages[: self._never_used]
        pages = np.flatnonzero((words[:, REFERENCES] > 0) & (words[:, USED] > 0))
        self.retained.retain(pages)
        return pages, words[pages]

    def retain_only(self, pages: NDArray[np.int64]) -> None:
        """Retain these pages and no others. The lock must be held."""
        assert self.retained is not None
        self._free += self.retained.retain_only(pages)

    @property
    def pages_taken(self) -> int:
        """Pages with a number below this were in use at some time."""
        return self._never_used

    def note_holder(self, held: PageHolder) -> None:
        """Allow more rows than the capacity as long as `held` says so. The lock must be held."""
        self._holders.add(held)

    # ---- readers ---------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While this is open, no page that was held at its beginning is used again. Needs no lock while open."""
        reader = None
        try:
            with self.lock:
                reader = self.begin_reading()
            yield
        finally:
            if reader is not None:
                self.end_reading(reader)

    def begin_reading(self) -> Reader:
        """Open a guard as `reading` does; give it to `end_reading`. The lock must be held.

        Pages that were freed before are out of sight from here on; those freed later stay whole until the lock is given
        back and taken again: an item may be removed first and looked up afterwards.
        """
        self.reclaim()
        number = self._next_reader
        self._next_reader = number + 1
        return Reader(self._readers, number)

    def end_reading(self, reader: Reader) -> None:
        """Close a guard; needs no lock, but where somebody waits for it."""
        reader.end()
        if self._waits_for_readers:
            with self.lock:
                self._reader_ended.notify_all()

    def check_rows_were_ours(self) -> None:
        """Raise if what was copied without the lock may be somebody else's; called after the copy.

        Raises:
            Closed: a file that was closed meanwhile may be written by whoever opened it next.
        """
        if self.is_closed and self.is_on_disk:
            raise Closed("the replay was closed while rows were copied")

    def hold(self, pages: Sequence[int], array: NDArray[Any]) -> NDArray[Any]:
        """The same memory as `array`, read-only, with these pages held until the last array over it is garbage."""
        with self.lock:
            for page in pages:
                self.pins.pin_page(page, 1)
        return _held(array, self, tuple(pages))

    def block(self, page: int, column: str, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """A zero-copy view of vector steps `start:stop` of a page: `dtype[T, N, ...]`, read-only.

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
        """The descriptor of the values of rows, for processes that map them; they become shared memory for it.

        A process that has it can change the values of all rows, and nothing else of the store. `plan_rows` tells it
        where they lie.

        What a thread writes meanwhile without the lock may be lost: it looks, with the lock, whether `arena.moved` is
        what it was before it began (test_a_step_written_while_the_rows_move_is_whole).

        Raises:
            StoreFull: no free page; the store goes on as before.
        """
        try:
            self.arena.share(self.lock, self._written)
        except OSError as error:
            raise out_of_space("a copy of the rows in shared memory", error) from error
        return self.arena.descriptor

    def _written(self) -> NDArray[np.int64]:
        """int64[arrays, 2]: where in the arena something may have been written."""
        return page_spans(self.layout, self.num_pages, 0, self._never_used)

    def make_private(self) -> None:
        """Makes what is written from here on stay in this process: it reaches neither files nor other processes."""
        for arena in (self.arena, self.index):
            arena.make_private()

    def before_fork(self) -> None:
        """Copy what tells of pages: the parent may change it before the child has memory of its own. Needs the lock."""
        freed = self.arrays.freed
        self._at_fork = self.arrays.pages[: self._never_used].copy(), freed[: freed[-1]].copy()

    def after_fork_in_parent(self) -> None:
        """Drop that copy."""
        self._at_fork = None

    def after_fork_in_child(self) -> None:
        """Stand on memory of this process's own, as it was at the fork. Rows are copied when they are written."""
        self.make_private()
        if self._at_fork is not None:
            pages, freed = self._at_fork
            self.arrays.pages[: len(pages)] = pages
            self.arrays.freed[: len(freed)] = freed
            self.arrays.freed[-1] = len(freed)
        self._at_fork = None
        self.retained = self.page_hashes = None
        # They were in other threads.
        self._readers.clear()
        self._waits_for_readers = 0

    # ---- sizes -----------------------------------------------------------------------------------------------------

    @property
    def row_nbytes(self) -> int:
        """Bytes of one row with its metadata (the step word; episode ids and versions are shared by many rows)."""
        return stored_nbytes(self.signature) + self.arrays.steps.itemsize

    @property
    def rows_in_pages(self) -> int:
        """Every row that was ever stored has a number below this."""
        return self._never_used * self.arrays.page_rows

    def statistics(self) -> StoreStatistics:
        """Returns the contents of the store now."""
        with self.lock:
            self.reclaim()
            words = self.arrays.pages[: self._never_used]
            rows = int((words[:, USED] * words[:, LANES]).sum())
            waiting = int(self.arrays.freed[-1]) + len(self._limbo)
            free = len(self._free) + waiting + (0 if self.retained is None else len(self.retained))
            return StoreStatistics(
                rows=rows,
                capacity=self.capacity,
                pages=self._never_used - free,
                free_pages=free,
                bytes=rows * self.row_nbytes,
                row_bytes=self.row_nbytes,
            )

    def close(self) -> None:
        """Let go of the memory; it is freed when the last array over it is garbage.

        From here on nothing is written any more: a file on disk may have another owner.
        """
        self.is_closed = True
        self._close_arenas()

    def _close_arenas(self) -> None:
        for arena in (self.arena, self.index):
            arena.close()


class Reader:
    """A guard (`Store.begin_reading`). It ends with this object, wherever an error or Ctrl-C comes.

    Args:
        readers: number of each guard that is open to the thread that opened it.
        number: of this one.
    """

    __slots__ = ("_number", "_readers")

    def __init__(self, readers: dict[int, threading.Thread], number: int) -> None:
        self._readers, self._number = readers, number
        readers[number] = threading.current_thread()

    def end(self) -> None:
        """Close it. Needs no lock; a second call does nothing."""
        self._readers.pop(self._number, None)

    __del__ = end


class _Hold:
    """What a held array stands on: when it is garbage, so is every array over it."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


def _held(array: NDArray[Any], store: Store, pages: tuple[int, ...]) -> NDArray[Any]:
    hold = _Hold(array)
    view = np.asarray(hold)
    view.flags.writeable = False
    weakref.finalize(hold, store.drop, pages)
    return view
