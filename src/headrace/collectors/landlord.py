"""The collector's side of leased pages: it leases them, takes in what a worker wrote, and makes items of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batch import Batch
from headrace.collectors.channel import Lease, Rows
from headrace.collectors.rollout import EpisodeLedger, by_env, make_batch
from headrace.errors import Closed, StoreFull
from headrace.replay.replay import ReplayCore
from headrace.store.layout import FINAL, KNOWN, LINKED, NEXT, STEP_MASK, USED, VERSIONED, LaneArrays
from headrace.store.window import step_after
from headrace.tables.description.rules import ItemRule, checked_rules
from headrace.tables.items.layout import CONTINUE
from headrace.tables.live_table import LiveTable
from headrace.tables.pending import NewItems, Pending
from headrace.tables.windows.cutting import Cutter, Windows

# The worker fills one page of rows, and has one ahead.
_ROW_PAGES = 2
# The worker has final rows enough for every step of a page of rows and a reset of all copies, whatever is left of the
# first page. So it never needs a page in the middle of a step.
_FINAL_PAGES = 3
_ONE_STEP = np.array([1], np.int64)


@dataclass
class Segment:
    """Committed steps of one page."""

    page: int
    start: int
    stop: int


class Landlord:
    """Leases pages of a replay to one worker and commits what it reports.

    Args:
        replay: in this process, its store in shared memory.
        rules: which items the rows become.
        num_envs: lanes of the worker.
        send: sends a message to the worker.
        all_applied: called under the replay's lock when the last item that waited for a rate limiter is in its table.
        may_wait: whether the learner goes on while the worker waits for a page: not where it waits for a batch itself.

    Raises:
        ValueError: more lanes than a page has rows.
    """

    def __init__(
        self,
        replay: ReplayCore,
        rules: Sequence[ItemRule],
        num_envs: int,
        send: Callable[[Lease], None],
        all_applied: Callable[[], None],
        may_wait: Callable[[], bool],
    ) -> None:
        self._replay = replay
        self._store = replay.store
        page_rows = self._store.arrays.page_rows
        if num_envs > page_rows:
            raise ValueError(
                f"replay_buffer: a step of the {num_envs} environments of the worker must fit into {page_rows} rows, "
                "1/32 of the capacity or 16 MiB; give the replay a larger capacity or the worker fewer environments"
            )
        for rule in checked_rules(rules):
            if rule.cut.end == CONTINUE:
                raise ValueError(
                    f"items: table {rule.table!r}: CONTINUE is for writers in the learner's process: workers hand in "
                    "whole pages, whose seams are not followed. Use another end, or a Collector"
                )
        self._tables = [
            (replay.live_table(rule.table), Cutter(self._store.pins, rule.cut, rule.priorities))
            for rule in rules
        ]
        self._reach_steps = max((rule.reach for rule in rules), default=1)
        self._num_envs = num_envs
        self._send = send
        self._lanes = self._store.lanes(LaneArrays.empty(num_envs))
        self._newest_rows: NDArray[np.int64] | None = None
        self._last_leased = -1
        self._leased: deque[int] = deque()
        self._reach: deque[int] = deque()
        self._committed = 0
        self._finals: deque[int] = deque()
        self._pending = _PendingItems(replay.lock, all_applied)
        self._segments: list[Segment] = []
        self._may_wait = may_wait
        self._is_closed = self._is_stopping = False
        self._observed: list[str] = []
        # Leases that wait for a free page, the oldest first.
        self._owed: deque[Callable[[], bool]] = deque()
        self._store.allow(_ROW_PAGES + _FINAL_PAGES)

    @property
    def has_pending(self) -> bool:
        """Whether items wait for a rate limiter."""
        return self._pending.count > 0

    def describe_pending(self) -> str:
        """Which items wait for which rate limiters; empty where none do."""
        with self._replay.lock:
            waiting = {name: count for name, count in self._pending.by_table.items() if count}
            return ", ".join(
                f"{count} for table {name!r} ({self._describe_table(name)})"
                for name, count in waiting.items()
            )

    def _describe_table(self, name: str) -> str:
        live = self._replay.live_table(name)
        return f"size {len(live.ring)}, inserts {live.inserts}, samples {live.samples}, {live.limiter}"

    def begin(self, observed: Iterable[str]) -> None:
        """Lease the first pages; final rows will hold the columns `observed`.

        Raises:
            StoreFull: no page is free.
        """
        self._observed = [name for name in observed if name in self._store.signature.columns]
        self._replay.note_given(self._observed)
        with self._replay.lock:
            for _ in range(_ROW_PAGES):
                self._owe(self._lease_rows)
            for _ in range(_FINAL_PAGES):
                self._owe(self._lease_finals)
            self._replay.writer_opened(self)

    def _owe(self, lease: Callable[[], bool]) -> None:
        """Lease a page as soon as one is free."""
        self._owed.append(lease)
        self._lease_owed()

    def _lease_owed(self) -> None:
        while self._owed and self._owed[0]():
            self._owed.popleft()

    @property
    def owes_pages(self) -> bool:
        """Whether the worker is to get a page that was not free; nobody tells when one is, so `lease_owed` looks."""
        return bool(self._owed) and self._may_wait()

    def lease_owed(self) -> None:
        """Lease the pages that are owed, as far as there are free ones.

        Raises:
            StoreFull: no page is free, and nobody will free one.
            Closed: the replay or this landlord is closed.
        """
        with self._replay.lock:
            self._lease_owed()

    def _acquire(self, lanes: int, previous: int = -1) -> int | None:
        """Take a page. None if there is none, but the worker is about to stop or the learner may let items leave.

        Raises:
            StoreFull: no page is free, and nobody will free one.
            Closed: the replay or this landlord is closed.
        """
        self._check_open()
        try:
            page: int = self._store.acquire(lanes, previous)
        except StoreFull:
            if self._is_stopping or (self._may_wait() and self._replay.items_may_leave()):
                return None
            raise
        return page

    def _check_open(self) -> None:
        self._replay.check_open()
        if self._is_closed:
            raise Closed("the collector is shut down")

    def _lease_rows(self) -> bool:
        page = self._acquire(self._num_envs, self._last_leased)
        if page is None:
            return False
        # From here on the worker may write versions; should it die, the store has to clear them.
        self._store.arrays.pages[page, VERSIONED] = 1
        self._last_leased = page
        self._leased.append(page)
        self._reach.append(page)
        self._send(Lease(page=page, finals=False))
        return True

    def _lease_finals(self) -> bool:
        page = self._acquire(1)
        if page is None:
            return False
        self._finals.append(page)
        self._send(Lease(page=page, finals=True))
        return True

    def commit(self, rows: Rows) -> None:
        """Make what a worker wrote part of the store, and items of it.

        Raises:
            StoreFull: no page is free for what comes next, and nobody will free one; what was written is in.
            Closed: the replay or this landlord is closed.
        """
        self._check(rows)
        with self._replay.lock:
            self._check_open()
            finals = self._take_finals(rows.finals)
            if rows.steps:
                self._commit_steps(rows)
            if rows.cuts:
                self._cut(finals[len(finals) - rows.cuts :])
            self._give_back_finals()
            if rows.page_full:
                self._turn()

    def _check(self, rows: Rows) -> None:
        """What comes from another process is looked at before it is relied on."""
        arrays = self._store.arrays
        room = arrays.page_rows // self._num_envs - int(arrays.pages[rows.page, USED])
        if not self._leased or rows.page != self._leased[0] or not 0 <= rows.steps <= room:
            raise RuntimeError(
                f"the worker reported {rows.steps} steps of page {rows.page}, which it does not fill"
            )

    def _commit_steps(self, rows: Rows) -> None:
        page, arrays = rows.page, self._store.arrays
        start = int(arrays.pages[page, USED])
        self._lanes.take_steps(page, rows.steps)
        self._committed += rows.steps
        segment = Segment(page, start, start + rows.steps)
        self._segments.append(segment)
        self._newest_rows = self._rows_of(segment)[-1]
        for table, cutter in self._tables:
            self._offer(table, cutter, cutter.cut_steps(page, rows.steps))

    def _take_finals(self, count: int) -> NDArray[np.int64]:
        """Take in so many final rows, in the order of the leased pages; returns them."""
        arrays = self._store.arrays
        taken = [np.empty(0, np.int64)]
        for page in self._finals:
            used = int(arrays.pages[page, USED])
            here = min(count, arrays.page_rows - used)
            arrays.pages[page, USED] += here
            taken.append(page * arrays.page_rows + used + np.arange(here))
            count -= here
        return np.concatenate(taken)

    def _give_back_finals(self) -> None:
        """Full pages of final rows: by now their rows are held by the pages that link to them."""
        arrays = self._store.arrays
        while self._finals and arrays.pages[self._finals[0], USED] == arrays.page_rows:
            self._store.release(self._finals.popleft())
            self._owe(self._lease_finals)

    def _offer(self, table: LiveTable, cutter: Cutter, windows: Windows) -> None:
        count = len(windows.rows)
        if count:
            keys = self._replay.new_keys(count)
            table.offer(NewItems(keys, *windows, cutter.priorities, self._pending))

    def _cut(self, finals: NDArray[np.int64]) -> None:
        """The open episodes end with these final rows: all copies were reset, or no step will follow."""
        assert self._newest_rows is not None
        rows = self._newest_rows[self._open_lanes(self._newest_rows)]
        for last, final in zip(rows.tolist(), finals.tolist(), strict=True):
            self._store.pins.link_final(last, final)
        for table, cutter in self._tables:
            self._offer(table, cutter, cutter.cut_finals(rows))

    def _open_lanes(self, newest: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lanes whose episode has no final row yet; `newest` are the last rows in the lanes."""
        return np.flatnonzero((self._store.arrays.steps[newest] & (FINAL | LINKED)) == 0)

    def end_trajectories(self) -> None:
        """Give each open trajectory its final row: the worker takes no further step, or none that is committed.

        The observation that followed the last committed step of a lane stands in the row after it. The worker wrote it
        there before it reported the step, so this holds for a worker that died as well.

        Raises:
            StoreFull: no page is free for the final rows; the trajectories stay open.
        """
        with self._replay.lock:
            newest = self._newest_rows
            if newest is None or self._replay.is_closed:
                return
            lanes = self._open_lanes(newest)
            while len(free := self._free_finals()) < len(lanes):
                self._finals.append(self._store.acquire(1))
            finals, following = free[: len(lanes)], self._rows_after(newest[None])[0]
            for name, column in self._store.columns.items():
                column[finals] = column[following[lanes]] if name in self._observed else 0
            words = self._store.arrays.steps
            for last, final in zip(newest[lanes].tolist(), finals.tolist(), strict=True):
                words[final] = step_after(int(words[last]) & STEP_MASK, 1) | FINAL
            self._take_finals(len(lanes))
            self._cut(finals)

    def _free_finals(self) -> NDArray[np.int64]:
        """The rows that are free in the leased pages of final rows, in order."""
        arrays = self._store.arrays
        pages = [
            page * arrays.page_rows + np.arange(arrays.pages[page, USED], arrays.page_rows)
            for page in self._finals
        ]
        return np.concatenate([np.empty(0, np.int64), *pages])

    def stop_leasing(self) -> None:
        """The worker is about to stop: from now on a full store does not fail, as no page is needed."""
        with self._replay.lock:
            self._is_stopping = True

    def _turn(self) -> None:
        """The worker goes on in the next page: give up what is out of reach, lease one more."""
        self._leased.popleft()
        # What is to be handed out as a batch is held too: its items may be gone from their tables before.
        wanted = self._segments[0].page if self._segments else -1
        while self._reach[0] != wanted and self._steps_after_first() >= self._reach_steps:
            self._store.release(self._reach.popleft())
        self._owe(self._lease_rows)

    def _steps_after_first(self) -> int:
        """How many steps were committed after the oldest page in reach."""
        _, *later = self._reach
        return sum(int(self._store.arrays.pages[page, USED]) for page in later)

    # ---- batches ---------------------------------------------------------------------------------------------------

    def forget_batch(self) -> None:
        """The steps committed since the last call are not wanted as a batch."""
        self._segments.clear()

    def take_batch(self, observed: frozenset[str], ledger: EpisodeLedger) -> Batch:
        """The steps committed since the last call as a batch, copied out."""
        segments, self._segments = self._segments, []
        store, arrays = self._store, self._store.arrays
        reader = None
        try:
            with self._replay.lock:
                rows = np.concatenate([self._rows_of(segment) for segment in segments])
                after = self._rows_after(rows)
                words = arrays.steps[rows].astype(np.int64)
                versions = np.concatenate([self._versions_of(segment) for segment in segments])
                reader = store.begin_reading()
            columns = {name: by_env(store.columns[name][rows]) for name in store.signature.columns}
            following = {name: by_env(store.columns[name][after]) for name in observed if name in columns}
            store.check_rows_were_ours()
        finally:
            if reader is not None:
                store.end_reading(reader)
        masked = (words & FINAL) != 0
        starts = ((words & STEP_MASK) == 0) & ~masked
        return make_batch(store.signature, columns, following, masked, starts, versions, ledger, 0)

    def _rows_of(self, segment: Segment) -> NDArray[np.int64]:
        """int64[steps, n]."""
        first: int = segment.page * self._store.arrays.page_rows
        rows = np.arange(segment.start * self._num_envs, segment.stop * self._num_envs)
        return (first + rows).reshape(-1, self._num_envs)

    def _versions_of(self, segment: Segment) -> NDArray[np.int64]:
        first = segment.page * self._store.arrays.page_rows
        stamps: NDArray[np.int64] = self._store.versions[first + segment.start : first + segment.stop].astype(
            np.int64
        )
        return stamps

    def _rows_after(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the next observations stand; those of the last step are written, but not committed yet."""
        arrays = self._store.arrays
        after, known = np.empty(rows.shape, np.int64), np.empty(rows.shape, np.uint8)
        self._store.window.resolve(rows.reshape(-1), _ONE_STEP, False, after.reshape(-1), known.reshape(-1))
        last = rows[-1] + self._num_envs
        page = int(rows[-1, 0]) // arrays.page_rows
        if last[-1] >= page * arrays.page_rows + arrays.page_rows // self._num_envs * self._num_envs:
            last = int(arrays.pages[page, NEXT]) * arrays.page_rows + np.arange(self._num_envs)
        after[-1] = np.where(known[-1] == KNOWN, after[-1], last)
        return after

    def close(self) -> None:
        """Give all pages back; items keep what they hold."""
        with self._replay.lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._owed.clear()
            self._replay.writer_closed(self)
            self._store.allow(-_ROW_PAGES - _FINAL_PAGES)
            if self._replay.is_closed:
                return
            for page in (*self._reach, *self._finals):
                self._store.release(page)
            self._reach.clear()
            self._leased.clear()
            self._finals.clear()


class _PendingItems(Pending):
    """The items of a landlord that wait; tells when the last of them is in its table, under the replay's lock."""

    def __init__(self, lock: threading.RLock, all_applied: Callable[[], None]) -> None:
        super().__init__(lock)
        self._all_applied = all_applied

    def left(self) -> None:
        """See `Pending.left`."""
        super().left()
        if not self.count:
            self._all_applied()
