"""The grantor's side of the lease protocol: it leases pages to a writer, and commits the steps that it reports."""

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
from headrace.leases.page_views import Columns
from headrace.leases.writing.page_writer import Purpose
from headrace.store.layout import NEXT, USED


class Ahead(NamedTuple):
    """Number of pages that a writer has at any time, if enough are free."""

    rows: int
    finals: int


IN_PLACE = Ahead(rows=2, finals=3)
"""A writer in place fills one page of rows and has one ahead. Its final rows suffice for every step of a page and a cut
of all lanes, so it never needs a page in the middle of a step."""

BY_COPY = Ahead(rows=1, finals=2)
"""A writer whose columns are a payload fills one page, and ends its episodes in it or after it."""


class Segment(NamedTuple):
    """Committed steps of one page."""

    page: int
    start: int
    stop: int


class LeaseGrantor:
    """Leases pages of a store to one writer, and commits the steps that it reports.

    The writer's messages are checked under the store's lock before any change. Messages to it are sent after the
    lock is released. One thread at a time commits; the other calls may come from any thread.

    Args:
        destination: takes the committed steps.
        lanes: of the writer.
        send: sends messages to the writer, in one piece.
        writer: its number in its connection.
        ahead: number of pages that it has at any time.
        may_wait: whether to wait for a page that is not free; False raises `StoreFull`.
        committed: called under the lock with the steps of each commit.
        left: called under the lock with each page that the writer has left.

    Attributes:
        observed: names of the columns that final rows have; empty before `open`.

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
        left: Callable[[int], None] = lambda _: None,
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
        self._left = left
        self._block = destination.new_block(lanes)
        self._sequence = 0
        self._rows: deque[int] = deque()
        self._finals: deque[int] = deque()
        self._outbox: deque[Message] = deque()
        # Leases that wait for a free page, the oldest first.
        self._owed: deque[Purpose] = deque()
        self.observed: list[str] = []
        self._ahead = ahead
        self._store.allow(sum(ahead))
        self._is_closed = self._is_stopping = False

    # ---- leases ----------------------------------------------------------------------------------------------------

    def open(self, observed: Iterable[str]) -> None:
        """Begins to owe pages (`lease_owed`); final rows will hold the columns `observed`."""
        self.observed = [name for name in observed if name in self._store.signature.columns]
        with self._store.lock:
            self._destination.open(self.observed)
            self._owe("rows", self._ahead.rows)
            self._owe("finals", self._ahead.finals)

    def _owe(self, purpose: Purpose, pages: int = 1) -> None:
        self._owed.extend([purpose] * pages)

    @property
    def lane_steps(self) -> NDArray[np.uint32]:
        """uint32[lanes], the index of each lane's next step in its episode; 0: none is under way."""
        return self._block.lane_steps

    def continue_episodes(self, lane_steps: NDArray[np.integer]) -> None:
        """Continues episodes whose steps so far are in another store.

        Args:
            lane_steps: of the writer of these steps.
        """
        self._block.lane_steps[:] = lane_steps

    @property
    def owes_pages(self) -> bool:
        """Whether the writer waits for a page that was not free; `lease_owed` tries again."""
        return bool(self._owed)

    def lease_owed(self) -> None:
        """Leases the pages that are owed, as far as they are free.

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
        """Takes a page; None if none is free now, and the writer is about to stop or may wait."""
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

    # ---- messages of the writer --------------------------------------------------------------------------------------

    def commit(
        self,
        commit: Commit,
        columns: Columns | None = None,
        finals: Columns | None = None,
        following: Columns | None = None,
    ) -> None:
        """Makes the rows that a writer wrote part of the store.

        A commit that was taken in already is acknowledged again: the writer had not received the acknowledgement.

        Args:
            commit: as it was received.
            columns: of a writer that cannot map the arena: each column of the steps, `[steps, lanes, ...]`.
            finals: of the same: the columns of its final rows, `[m, ...]`.
            following: of the same: the observed columns after its last step, `[lanes, ...]`; None: not known yet.

        Raises:
            LeaseError: the message does not continue the commits before it; nothing changed.
            StoreFull: no page is free for the next steps, and none can be expected; the steps of this commit are
                stored. Or there is no memory for items of the steps.
            Closed: the destination or this grantor is closed.
        """
        if commit.sequence <= self._sequence:
            self._send(Ack(writer=self._writer, sequence=self._sequence))
            return
        try:
            with self._store.lock:
                self._check_open()
                self._commit(commit, columns, finals, following)
        finally:
            self._send_outbox()

    def _commit(
        self, commit: Commit, columns: Columns | None, finals: Columns | None, following: Columns | None
    ) -> None:
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
        if following is not None and written.steps:
            self._copy_following(page, start + written.steps, following)
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

    def _copy_following(self, page: int, step: int, following: Columns) -> None:
        """Writes the observations before a step of a page that is not committed yet.

        Raises:
            LeaseError: it is beyond the page, and the writer has no further one.
        """
        if step == self._steps_in_page:
            if len(self._rows) < 2:
                raise LeaseError(
                    "shows_next: expected a page for the observations after the last step, got none leased"
                )
            page, step = self._rows[1], 0
        first = page * self._arrays.page_rows + step * self.lanes
        for name, values in following.items():
            self._store.columns[name][first : first + self.lanes] = values

    def take_back(self, message: Return) -> None:
        """Takes a page back that the writer leaves before it is full.

        Raises:
            LeaseError: no step of this page was committed, or the writer fills another page.
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
        first = self._rows.popleft()
        assert page == first
        self._left(page)
        self._owe("rows")

    # ---- final rows ------------------------------------------------------------------------------------------------

    def _next_finals(self, count: int) -> NDArray[np.int64]:
        """Returns the next `count` free final rows in order, or fewer if the leased pages have no more."""
        rows, found = self._arrays.page_rows, [np.empty(0, np.int64)]
        for page in self._finals:
            if not count:
                break
            used = int(self._arrays.pages[page, USED])
            here = min(count, rows - used)
            found.append(page * rows + np.arange(used, used + here))
            count -= here
        return np.concatenate(found)

    def _give_back_finals(self) -> None:
        """Releases full pages of final rows: the pages that link to their rows hold them."""
        while self._finals and self._arrays.pages[self._finals[0], USED] == self._arrays.page_rows:
            self._store.release(self._finals.popleft())
            self._owe("finals")

    # ---- the end ---------------------------------------------------------------------------------------------------

    def stop_leasing(self) -> None:
        """Notes that the writer is about to stop: it needs no page, so a full store is no error from here on."""
        with self._store.lock:
            self._is_stopping = True

    def end_episodes(self) -> None:
        """Ends each open episode with its final row; the writer commits no further step.

        The observation after a lane's last committed step stands in the next row of the lane. The writer wrote it there
        before it reported the step, so this is true of a writer that died, too.

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
                column[final_rows] = column[following] if name in self.observed else 0
            self._destination.end(lanes, final_rows)

    def _row_after_last(self) -> int:
        """Returns the first row of the vector step after the last one; it is written, and not committed."""
        page, in_page = divmod(self._block.last, self._arrays.page_rows)
        if in_page + self.lanes < self._steps_in_page * self.lanes:
            return self._block.last + self.lanes
        following = int(self._arrays.pages[page, NEXT])
        # A writer without the next page has no place for the observations that follow.
        return self._block.last if following < 0 else following * self._arrays.page_rows

    def drop_episodes(self) -> None:
        """Ends the open episodes of all lanes without final rows and without further items."""
        with self._store.lock:
            self._destination.drop(np.flatnonzero(self._block.lane_steps))

    def close(self) -> None:
        """Releases all pages; items keep the rows that they hold. A second call does nothing."""
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
