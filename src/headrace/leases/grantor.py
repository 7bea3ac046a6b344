"""The grantor's side of the lease protocol: it leases pages to a writer, and makes what the writer reports rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed, StoreFull
from headrace.leases.checking import CheckedCommit, LeaseError
from headrace.leases.destination import Destination
from headrace.leases.messages import Ack, Commit, Lease, Message, Return
from headrace.leases.page_writer import Purpose
from headrace.leases.place import Columns
from headrace.store.layout import NEXT, USED


class Ahead(NamedTuple):
    """The number of pages that a writer has at any time, as far as there are free ones."""

    rows: int
    finals: int


IN_PLACE = Ahead(rows=2, finals=3)
"""A writer in place fills one page of rows and has one ahead. It has final rows enough for every step of a page and a
cut of all lanes, whatever is left of the first page: so it never needs a page in the middle of a step."""

BY_COPY = Ahead(rows=1, finals=2)
"""A writer whose columns come as a payload fills one page, and ends its episodes in it or after it."""


class Segment(NamedTuple):
    """Committed steps of one page."""

    page: int
    start: int
    stop: int


class LeaseGrantor:
    """Leases pages of a store to one writer, and commits what it reports.

    The writer's messages are checked under the store's lock before any change. Messages to it are sent after the
    lock is given back. Commits come one after the other; the other calls may come from any thread.

    Args:
        destination: takes the committed steps.
        lanes: of the writer.
        send: sends messages to the writer, in one piece.
        writer: its number in its connection.
        ahead: how many pages it has at any time.
        may_wait: whether a page that is not free now can be expected to become free; else that is `StoreFull`.
        committed: called under the lock with the steps that each commit brought.

    Raises:
        ValueError: more lanes than a page has rows.
    """

    def __init__(
        self,
        destination: Destination,
        lanes: int,
        send: Callable[..., None],
        *,
        writer: int = 0,
        ahead: Ahead = IN_PLACE,
        may_wait: Callable[[], bool] = lambda: False,
        committed: Callable[[Segment], None] = lambda _: None,
    ) -> None:
        self._is_closed = True  # Until everything below has succeeded.
        self._destination = destination
        self._store = destination.store
        self._arrays = self._store.arrays
        if lanes > self._arrays.page_rows:
            raise ValueError(
                f"lanes: expected at most {self._arrays.page_rows}, the rows of a page, got {lanes}"
            )
        self.lanes = lanes
        self._send = send
        self._writer = writer
        self._may_wait = may_wait
        self._committed = committed
        self._block = destination.new_block(lanes)
        self._sequence = 0
        self._rows: deque[int] = deque()
        self._finals: deque[int] = deque()
        self._outbox: deque[Message] = deque()
        # Leases that wait for a free page, the oldest first.
        self._owed: deque[Purpose] = deque()
        self._observed: list[str] = []
        self._ahead = ahead
        self._store.allow(sum(ahead))
        self._is_closed = self._is_stopping = False

    # ---- leases ----------------------------------------------------------------------------------------------------

    def open(self, observed: Iterable[str]) -> None:
        """Begin to owe pages, for `lease_owed`; final rows will hold the columns `observed`."""
        self._observed = [name for name in observed if name in self._store.signature.columns]
        with self._store.lock:
            self._destination.open(self._observed)
            self._owe("rows", self._ahead.rows)
            self._owe("finals", self._ahead.finals)

    def _owe(self, purpose: Purpose, pages: int = 1) -> None:
        self._owed.extend([purpose] * pages)

    def continue_from(self, other: LeaseGrantor) -> None:
        """Go on with the episodes of another writer of these lanes, whose steps are in another store."""
        self._block.lane_steps[:] = other._block.lane_steps

    @property
    def owes_pages(self) -> bool:
        """Whether the writer is to get a page that was not free: `lease_owed` looks again."""
        return bool(self._owed)

    def lease_owed(self) -> None:
        """Lease the pages that are owed, as far as there are free ones.

        Raises:
            StoreFull: no page is free, and none can be expected to become free.
            Closed: the destination or this grantor is closed.
        """
        with self._store.lock:
            self._lease_owed()
        self._send_outbox()

    def _lease_owed(self) -> None:
        while self._owed:
            purpose = self._owed[0]
            page = self._acquire(purpose)
            if page is None:
                return
            (self._rows if purpose == "rows" else self._finals).append(page)
            self._owed.popleft()
            self._outbox.append(Lease(writer=self._writer, page=page, purpose=purpose))

    def _acquire(self, purpose: Purpose) -> int | None:
        """Take a page. None if there is none now, but the writer is about to stop or a page can be expected."""
        self._check_open()
        try:
            return self._block.lease_page() if purpose == "rows" else self._store.acquire(1)
        except StoreFull:
            if self._is_stopping or self._may_wait():
                return None
            raise

    def _check_open(self) -> None:
        self._destination.check_open()
        if self._is_closed:
            raise Closed("the lease grantor is closed")

    def _send_outbox(self) -> None:
        messages = []
        while self._outbox:  # Another thread may be sending too: each message is sent once.
            messages.append(self._outbox.popleft())
        if messages:
            self._send(*messages)

    # ---- what the writer says --------------------------------------------------------------------------------------

    def commit(self, commit: Commit, columns: Columns | None = None, finals: Columns | None = None) -> None:
        """Make what a writer wrote part of the store.

        A commit that was taken in already, because the writer did not hear of it, is acknowledged again.

        Args:
            commit: as it was received.
            columns: of a writer that cannot map the arena: each column of the steps, `[steps, lanes, ...]`.
            finals: of the same: the columns of its final rows, `[m, ...]`.

        Raises:
            LeaseError: the message is not a continuation of what was committed before; nothing has changed.
            StoreFull: no page is free for what comes next, and none can be expected; what was written is in. Or: items
                of the steps found no room.
            Closed: the destination or this grantor is closed.
        """
        if commit.sequence <= self._sequence:
            self._send(Ack(writer=self._writer, sequence=self._sequence))
            return
        try:
            with self._store.lock:
                self._check_open()
                self._commit(commit, columns, finals)
        finally:
            self._send_outbox()

    def _commit(self, commit: Commit, columns: Columns | None, finals: Columns | None) -> None:
        if commit.sequence != self._sequence + 1:
            raise LeaseError(f"sequence: expected {self._sequence + 1}, got {commit.sequence}")
        if not self._rows or commit.page != self._rows[0]:
            leased = self._rows[0] if self._rows else "none"
            raise LeaseError(f"page: expected {leased}, which is leased and comes next, got {commit.page}")
        page, start = commit.page, int(self._arrays.pages[commit.page, USED])
        checked = CheckedCommit(
            commit, self._steps_in_page - start, self._block.lane_steps, self._next_finals
        )
        written, cut, final_rows = checked.written, checked.cut, checked.final_rows
        if columns is not None and finals is not None:
            self._copy(page, start, commit.steps, columns, final_rows, finals)
        self._sequence = commit.sequence
        try:
            if written.steps:
                self._destination.commit(written)
                self._committed(Segment(page, start, start + written.steps))
            if cut.size:
                self._destination.end(cut, final_rows[len(final_rows) - len(cut) :])
        finally:
            self._outbox.append(Ack(writer=self._writer, sequence=self._sequence))
            self._give_back_finals()
            if start + written.steps == self._steps_in_page:
                self._leave(page)
        self._lease_owed()

    @property
    def _steps_in_page(self) -> int:
        return self._arrays.page_rows // self.lanes

    def _copy(
        self,
        page: int,
        start: int,
        steps: int,
        columns: Columns,
        final_rows: NDArray[np.int64],
        finals: Columns,
    ) -> None:
        first = page * self._arrays.page_rows + start * self.lanes
        for name, column in self._store.columns.items():
            rows = column[first : first + steps * self.lanes]
            rows.reshape(steps, self.lanes, *rows.shape[1:])[...] = columns.get(name, 0)
            column[final_rows] = finals.get(name, 0)

    def take_back(self, message: Return) -> None:
        """The writer goes on in the page that it was leased next.

        Raises:
            LeaseError: nothing of this page was committed, or it is not the one that the writer fills.
            StoreFull, Closed: as `commit`.
        """
        with self._store.lock:
            self._check_open()
            if not self._rows or message.page != self._rows[0] or not self._arrays.pages[message.page, USED]:
                raise LeaseError(f"page: {message.page} is not a page that the writer has begun to fill")
            self._leave(message.page)
            self._lease_owed()
        self._send_outbox()

    def _leave(self, page: int) -> None:
        assert page == self._rows.popleft()
        self._owe("rows")

    # ---- final rows ------------------------------------------------------------------------------------------------

    def _next_finals(self, count: int) -> NDArray[np.int64]:
        """The next `count` free rows of the leased pages of final rows, in order; fewer where there are no more."""
        rows, found = self._arrays.page_rows, [np.empty(0, np.int64)]
        for page in self._finals:
            used = int(self._arrays.pages[page, USED])
            here = min(count, rows - used)
            found.append(page * rows + np.arange(used, used + here))
            count -= here
        return np.concatenate(found)

    def _give_back_finals(self) -> None:
        """Full pages of final rows: by now their rows are held by the pages that link to them."""
        while self._finals and self._arrays.pages[self._finals[0], USED] == self._arrays.page_rows:
            self._store.release(self._finals.popleft())
            self._owe("finals")

    # ---- the end ---------------------------------------------------------------------------------------------------

    def stop_leasing(self) -> None:
        """The writer is about to stop: from now on a full store does not fail, as no page is needed."""
        with self._store.lock:
            self._is_stopping = True

    def end_episodes(self) -> None:
        """Give each open episode its final row: the writer takes no further step, or none that is committed.

        The observation that followed the last committed step of a lane stands in the row after it. The writer wrote it
        there before it reported the step, so this holds for a writer that died as well.

        Raises:
            StoreFull: no page is free for the final rows; the episodes stay open.
        """
        block = self._block
        with self._store.lock:
            self._check_open()
            lanes = np.flatnonzero(block.lane_steps)
            if not lanes.size:
                return
            while len(final_rows := self._next_finals(len(lanes))) < len(lanes):
                self._finals.append(self._store.acquire(1))
            following = self._row_after_last() + lanes
            for name, column in self._store.columns.items():
                column[final_rows] = column[following] if name in self._observed else 0
            self._destination.end(lanes, final_rows)

    def _row_after_last(self) -> int:
        """The first row of the vector step that follows the last one; it is written, but not committed yet."""
        page, in_page = divmod(self._block.last, self._arrays.page_rows)
        if in_page + self.lanes < self._steps_in_page * self.lanes:
            return self._block.last + self.lanes
        following = int(self._arrays.pages[page, NEXT])
        # A writer that fills a page without having the next one has nowhere to write what follows.
        return self._block.last if following < 0 else following * self._arrays.page_rows

    def drop_episodes(self) -> None:
        """End the open episodes of all lanes without final rows; no further item is made of them."""
        with self._store.lock:
            self._destination.drop(np.flatnonzero(self._block.lane_steps))

    def close(self) -> None:
        """Give all pages back; items keep what they hold. A second call does nothing."""
        with self._store.lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._owed.clear()
            self._destination.close()
            self._store.allow(-sum(self._ahead))
            for page in (*self._block.release(), *self._finals):
                self._store.release(page)
            self._rows.clear()
            self._finals.clear()

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            # No lock here: another thread may hold it, which waits for this one.
            self._store.drop([*self._block.release(), *self._finals], sum(self._ahead))
