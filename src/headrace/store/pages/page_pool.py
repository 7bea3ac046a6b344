"""Pages of a store: taken by writers, held by items, readers and views, used again when nothing holds them."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.clock import SYSTEM_CLOCK
from headrace.errors import Closed, StoreFull
from headrace.store.layout import LANES, MAX_ROWS, NEXT, PREVIOUS, REFERENCES, USED, VERSIONED, StoreArrays
from headrace.store.memory.out_of_space import out_of_space
from headrace.store.pages.pinning import Pins
from headrace.store.pages.readers import Readers, ReadGuard
from headrace.store.pages.retained import RetainedPages
from headrace.store.pages.unfinished import UnfinishedPages
from headrace.store.window import Window
from headrace.waits import Wait


class PageHolder(Protocol):
    """Holds pages for a while. As long as it does, more rows than the capacity may be taken."""

    @property
    def extra_rows(self) -> int:
        """Rows that may be taken beyond the capacity."""


class PagePool:
    """The pages of a store.

    Args:
        capacity: rows that can be stored at least; None: as many as were reserved.
        num_pages: reserved pages.
        arrays: of the store.
        versions: int32[rows], of the store.
        row_nbytes: bytes of one row with its word; episode ids and versions are shared by many rows.

    Attributes:
        capacity, num_pages, arrays, versions, row_nbytes: see above.
        lock: held while pages or references change.
        is_closed: whether the store is closed.
        window: finds the rows that follow one another.
        pins: counts the references to pages.
        who_holds: describes what holds the rows, for the message of a full store.
        retained: pages that are not used again, since a state on the disk needs them; None for memory.
        page_hashes: uint64[pages], 0 for a page that was taken since it was hashed; None for memory.
    """

    def __init__(
        self,
        capacity: int | None,
        num_pages: int,
        arrays: StoreArrays,
        versions: NDArray[np.int32],
        row_nbytes: int,
    ) -> None:
        self.capacity = capacity
        self.num_pages = num_pages
        self.arrays = arrays
        self.versions = versions
        self.row_nbytes = row_nbytes
        self.window = Window(arrays)
        self.pins = Pins(self.window)
        self.lock = threading.RLock()
        self.is_closed = False
        self.who_holds: Callable[[], str] = lambda: ""
        self.retained: RetainedPages | None = None
        self.page_hashes: NDArray[np.uint64] | None = None
        # A page is at most 1/32 of the capacity. The oldest page of the held rows may be part free and the newest part
        # filled, so two pages more are allowed than the rows need.
        self._row_budget = MAX_ROWS if capacity is None else capacity + 2 * arrays.page_rows
        self._charged = 0
        self._charges = np.zeros(num_pages, np.int32)
        self._never_used = 0
        self._free: list[int] = []
        # Freed pages, each with the epoch in which it was freed.
        self._retired: deque[tuple[int, int]] = deque()
        self._readers = Readers(self.lock)
        self._dropped: deque[int] = deque()
        self._no_longer_allowed: deque[int] = deque()
        self._holders: weakref.WeakSet[PageHolder] = weakref.WeakSet()
        self._unfinished = UnfinishedPages(arrays)

    def adopt(self, held: NDArray[np.bool_]) -> None:
        """Goes on with recovered pages from a file (`pages.recovery`); no page may be in use yet.

        Args:
            held: bool[n], of the first n pages; the pages after them were never used.
        """
        words, page_rows = self.arrays.pages[: len(held)], self.arrays.page_rows
        lanes = np.maximum(words[:, LANES], 1)
        self._charges[: len(held)] = np.where(held, lanes * (page_rows // lanes), 0)
        self._charged = int(self._charges.sum())
        self._never_used = len(held)
        free = np.flatnonzero(~held)[::-1].tolist()
        retained = self.retained
        # A page that nothing holds may still have rows of the durable point.
        self._free = [page for page in free if retained is None or not retained.takes(page)]

    # ---- taking ----------------------------------------------------------------------------------------------------

    def acquire(self, lanes: int, previous: int = -1) -> int:
        """Takes a page for a block of `lanes`, as the continuation of page `previous`; it has one reference.

        Raises:
            StoreFull: no page is free; nothing changed.
            Closed: the store is closed.
        """
        with self.lock:
            if self.is_closed:
                raise Closed("the replay is closed")
            self.reclaim()
            charge = lanes * (self.arrays.page_rows // lanes)
            self._wait_for_pages(charge, 1)
            page = self._take_page()
            self._charged += charge
            self._charges[page] = charge
            if self.page_hashes is not None:
                self.page_hashes[page] = 0
            self._unfinished.forget(page)
            words = self.arrays.pages[page]
            if words[VERSIONED]:
                self.versions[page * self.arrays.page_rows : (page + 1) * self.arrays.page_rows] = 0
            words[:] = 0
            words[LANES], words[REFERENCES], words[NEXT], words[PREVIOUS] = lanes, 1, -1, previous
            if previous >= 0:
                self.arrays.pages[previous, NEXT] = page
            return page

    def leave(self, page: int, note: object = None) -> None:
        """Lets a later block of as many lanes go on in the rest of a page, as long as something holds the page.

        Args:
            note: see `take_back`.
        """
        with self.lock:
            self._unfinished.leave(page, note)

    def set_aside(self, page: int, note: object) -> None:
        """Lets only the block that has the note go on in the rest of a page."""
        with self.lock:
            self._unfinished.set_aside(page, note)

    def go_on(self, lanes: int) -> int:
        """Takes the page that a block of as many lanes left last, and adds a reference to it; returns -1 if none is."""
        with self.lock:
            self.reclaim()
            page = self._unfinished.newest(lanes)
            if page >= 0:
                self._hold([page])
            return page

    def take_back(self, pages: Sequence[int], note: object) -> bool:
        """Adds a reference to each page that a block has given back; returns False if they are not as they were then.

        Args: see `UnfinishedPages.are_whole`.
        """
        with self.lock:
            self.reclaim()
            is_whole = self._unfinished.are_whole(pages, note)
            if is_whole:
                self._hold(pages)
            return is_whole

    def _hold(self, pages: Sequence[int]) -> None:
        """Adds a reference to each of these pages; a block goes on in the last one."""
        for page in pages:
            self.pins.pin_page(page, 1)
        self._unfinished.forget(pages[-1])
        if self.page_hashes is not None:
            self.page_hashes[pages[-1]] = 0

    def require(self, lanes: Sequence[int]) -> None:
        """Checks that pages for blocks of these lanes can be taken, and takes their disk space.

        The lock must be held until they are taken.

        Raises:
            StoreFull: they cannot; nothing changed.
        """
        if not lanes:
            return
        rows = self.arrays.page_rows
        charge = sum(each * (rows // each) for each in lanes)
        self.reclaim()
        self._wait_for_pages(charge, len(lanes))
        # `_take_page` gives up the retained pages when nothing else is left.
        for page in range(
            self._never_used, self._never_used + len(lanes) - len(self._free) - self._num_waiting
        ):
            self._reserve_page(page)

    def allow(self, pages: int) -> None:
        """Raises (or, negative, lowers again) the number of pages that may be taken beyond the capacity.

        For part-filled pages beyond the two that every store has: lanes that take several pages side by side, and pages
        that are leased ahead.
        """
        with self.lock:
            if self.capacity is not None:
                self._row_budget += pages * self.arrays.page_rows

    @property
    def _num_waiting(self) -> int:
        """Frees pages that wait, because the durable point needs their rows."""
        return 0 if self.retained is None else len(self.retained)

    def _has_pages(self, charge: int, pages: int) -> bool:
        extra = sum(held.extra_rows for held in self._holders) if self._holders else 0
        within = self._charged + charge <= self._row_budget + extra
        return within and len(self._free) + self._num_waiting + self.num_pages - self._never_used >= pages

    def _wait_for_pages(self, charge: int, pages: int) -> None:
        """Waits while pages are free but for readers in other threads, each of which copies one batch.

        tests/store/test_store.py shows it.
        """
        wait: Wait | None = None
        while not self._has_pages(charge, pages):
            if not (self._retired and self._readers.wait_for_one()):
                raise StoreFull(self._full_message())
            wait = wait or Wait(SYSTEM_CLOCK, None, self._reading_message)
            # The lock is held more than once, in the middle of an append.
            wait.look(None)
            self.reclaim()

    def _reading_message(self, seconds: float) -> str:
        return (
            f"an append has waited {seconds:.3g} s for a page of rows that other threads ({self._readers.names()}) "
            "are still copying. Wait for these threads, or give the store a larger capacity"
        )

    def free_pages(self) -> int:
        """Returns the number of pages that the store can take now, whatever its capacity. The lock must be held."""
        self.reclaim()
        return len(self._free) + self._num_waiting + self.num_pages - self._never_used

    def _full_message(self) -> str:
        rows = self._rows_held()
        return (
            f"the store is full: capacity {self.capacity} steps, {rows} rows held ({rows * self.row_nbytes} bytes); "
            f"space is freed {self.arrays.page_rows} rows at a time, when nothing holds any of them. "
            f"{self._part_filled(rows)}{self.who_holds()}"
            "Give it a larger capacity, let items leave (a smaller max_size, max_times_sampled, delete), or close "
            "writers that are not used any more"
        )

    def _part_filled(self, rows: int) -> str:
        """Returns a sentence if most of the capacity is in places that no row can take any more."""
        if self.capacity is None or 2 * rows >= self.capacity:
            return ""
        pages = self._never_used - self._num_free()
        return (
            f"{pages} pages are in use: each open writer fills pages of its own, and what a closed one leaves of its "
            "last page serves writers of as many lanes, but none if windows go on over ends of episodes (CONTINUE). "
            "Write many episodes with one writer. "
        )

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

    def _reserve_page(self, page: int) -> None:
        """Takes the disk space of a page; memory needs none. A store on disk overrides it, and may raise StoreFull."""

    def _take_new(self) -> int:
        self._reserve_page(self._never_used)
        self._never_used += 1
        return self._never_used - 1

    # ---- giving back -----------------------------------------------------------------------------------------------

    def release(self, page: int) -> None:
        """Gives one reference to a page back."""
        with self.lock:
            if not self.is_closed:
                self.pins.pin_page(page, -1)

    def drop(self, pages: Sequence[int], allowed: int = 0) -> None:
        """Gives references back from a finalizer, which may run anywhere, also under the lock; `reclaim` applies it.

        Args:
            pages: one reference to each.
            allowed: lowers the number of pages that may be taken, as `allow(-allowed)` does.
        """
        if allowed:
            self._no_longer_allowed.append(allowed)
        self._dropped.extend(pages)

    @property
    def has_dropped(self) -> bool:
        """Whether references of finalizers wait to be given back."""
        return bool(self._dropped)

    def reclaim(self) -> None:
        """Moves pages without references to the free list, those being read after their readers are done.

        From here on no window leads into them. The lock must be held.

        A page is looked at here for the first time after it was freed, so every reader that may still copy from it
        has begun; it waits for all of them. tests/store/test_store.py::test_page_waits_for_its_readers shows it.
        """
        freed = self.arrays.freed
        if self.is_closed or not (freed[-1] or self._retired or self._dropped or self._no_longer_allowed):
            return
        while self._no_longer_allowed:
            self.allow(-self._no_longer_allowed.popleft())
        # Ctrl-C may come after any call, so there is none between the two halves of a change.
        while self._dropped:
            page, pins = self._dropped[0], self.pins
            del self._dropped[0]
            pins.pin_page(page, -1)
        self.pins.take_freed()
        epoch = self._readers.epoch
        self._retired += [(epoch, page) for page in freed[: freed[-1]].tolist()]
        freed[-1] = 0
        oldest = self._readers.oldest()
        while self._retired and self._retired[0][0] <= oldest:
            page = self._retired[0][1]
            charge = int(self._charges[page])
            del self._retired[0]
            self._charged -= charge
            if self.retained is None:
                self._free += [page]
            elif not self.retained.takes(page):
                self._free.append(page)

    # ---- pages that others hold ------------------------------------------------------------------------------------

    def pages_in_use(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the held pages with rows, rising, and a copy of their words. The lock must be held."""
        self.reclaim()
        words = self.arrays.pages[: self._never_used]
        pages = np.flatnonzero((words[:, REFERENCES] > 0) & (words[:, USED] > 0))
        return pages, words[pages]

    def retain_pages(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Retains every page that is in use; returns them as `pages_in_use` does. The lock must be held."""
        assert self.retained is not None
        pages, words = self.pages_in_use()
        self.retained.retain(pages)
        return pages, words

    def retain_only(self, pages: NDArray[np.int64]) -> None:
        """Retains these pages and no others. The lock must be held."""
        assert self.retained is not None
        self._free += self.retained.retain_only(pages)

    def note_holder(self, held: PageHolder) -> None:
        """Allows more rows than the capacity while `held` says so. The lock must be held."""
        self._holders.add(held)

    # ---- readers ---------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Keeps the pages that are held now from being used again within the block, which needs no lock."""
        guard = None
        try:
            with self.lock:
                guard = self.begin_reading()
            yield
        finally:
            if guard is not None:
                guard.end()

    def begin_reading(self) -> ReadGuard:
        """Opens a guard, as `reading` does, that the caller ends. The lock must be held.

        Pages that were freed before are out of sight from here on; those freed later stay whole until the lock is
        released and taken again. So an item may be removed first and looked up afterwards.
        """
        self.reclaim()
        return self._readers.begin()

    # ---- sizes -----------------------------------------------------------------------------------------------------

    @property
    def pages_taken(self) -> int:
        """Pages with a number below this were in use at some time."""
        return self._never_used

    @property
    def rows_in_pages(self) -> int:
        """Every row that was ever stored has a number below this."""
        return self._never_used * self.arrays.page_rows

    def _rows_held(self) -> int:
        words = self.arrays.pages[: self._never_used]
        return int((words[:, USED] * words[:, LANES]).sum())

    def _num_free(self) -> int:
        """Returns the number of pages that were taken and given back."""
        return len(self._free) + int(self.arrays.freed[-1]) + len(self._retired) + self._num_waiting
