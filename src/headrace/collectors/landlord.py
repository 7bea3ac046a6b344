"""The collector's side of leased pages: it leases them, takes in what a worker wrote, and makes items of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batch import Batch
from headrace.collectors.channel import Lease, Rows
from headrace.collectors.rollout import EpisodeLedger, by_env, make_batch
from headrace.replay.cutting import cut_block, cut_finals, new_windows, room_for
from headrace.replay.live_table import NewItems, Pending
from headrace.replay.rules import ItemRule
from headrace.spec import Signature
from headrace.store.commit import commit_steps, note_finals
from headrace.store.layout import FINAL, LINKED, NEXT, STEP_MASK, USED, VERSIONED
from headrace.store.window import KNOWN, resolve

_AHEAD = 2
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

    Raises:
        ValueError: more lanes than a page has rows.
    """

    def __init__(
        self, replay: Any, rules: Sequence[ItemRule], num_envs: int, send: Callable[[Lease], None]
    ) -> None:
        self._replay = replay
        self._store = replay.store
        page_rows = self._store.arrays.page_rows
        if num_envs > page_rows:
            raise ValueError(
                f"replay_buffer: a page of it has {page_rows} rows, fewer than the {num_envs} environments of the "
                "worker; give the replay a larger capacity"
            )
        self._rules = [(rule, replay.live_table(rule.table)) for rule in rules]
        self._reach_steps = max((rule.reach for rule in rules), default=1)
        self._num_envs = num_envs
        self._send = send
        self._episodes = np.full(num_envs, -1, np.int64)
        self._last_leased = -1
        self._leased: deque[int] = deque()
        self._reach: deque[tuple[int, int]] = deque()
        self._committed = 0
        self._finals: deque[int] = deque()
        self._full_finals: list[int] = []
        self.pending = Pending(replay.lock)
        self.segments: list[Segment] = []

    def begin(self) -> None:
        """Lease the first pages."""
        while len(self._leased) < _AHEAD:
            self._lease_rows()
        while len(self._finals) < _AHEAD:
            self._lease_finals()

    def _lease_rows(self) -> None:
        page = self._store.acquire(self._num_envs, self._last_leased)
        self._last_leased = page
        self._leased.append(page)
        self._reach.append((page, self._committed))
        self._send(Lease(page=page, finals=False))

    def _lease_finals(self) -> None:
        page = self._store.acquire(1)
        self._finals.append(page)
        self._send(Lease(page=page, finals=True))

    def commit(self, rows: Rows) -> None:
        """Make what a worker wrote part of the store, and items of it.

        Raises:
            StoreFull: no page could be leased for what comes next; what was written is in.
        """
        page, arrays = rows.page, self._store.arrays
        self._check(rows)
        with self._replay.lock:
            self._take_finals(rows.finals)
            if rows.steps:
                start = int(arrays.pages[page, USED])
                if (rows.versions[0], rows.versions[2]) != (0, 0):
                    arrays.pages[page, VERSIONED] = 1
                commit_steps(arrays, page, rows.steps, self._episodes, self._store.next_episode)
                note_finals(arrays, page, rows.steps)
                self._committed += rows.steps
                self.segments.append(Segment(page, start, start + rows.steps))
                for rule, table in self._rules:
                    out = new_windows(room_for(rows.steps * self._num_envs, rows.ends, rule.cut))
                    cut_block(arrays, page, rows.steps, rule.cut, out)
                    self._offer(rule, table, out)
            if rows.cut:
                self._cut()
        if rows.page_full:
            self._turn(page)

    def _check(self, rows: Rows) -> None:
        """What comes from another process is looked at before it is relied on."""
        arrays = self._store.arrays
        room = arrays.page_rows // self._num_envs - int(arrays.pages[rows.page, USED])
        if not self._leased or rows.page != self._leased[0] or not 0 <= rows.steps <= room:
            raise RuntimeError(
                f"the worker reported {rows.steps} steps of page {rows.page}, which it does not fill"
            )

    def _take_finals(self, count: int) -> None:
        arrays = self._store.arrays
        while count:
            page = self._finals[0]
            taken = min(count, arrays.page_rows - int(arrays.pages[page, USED]))
            arrays.pages[page, USED] += taken
            count -= taken
            if arrays.pages[page, USED] == arrays.page_rows:
                self._finals.popleft()
                # Its rows are held by the pages that link to them, which are committed only now: give up ours last.
                self._lease_finals()
                self._full_finals.append(page)

    def _offer(self, rule: ItemRule, table: Any, out: Any) -> None:
        count = int(out.count[0])
        if count:
            keys = self._replay.new_keys(count)
            table.offer(NewItems(keys, out.rows[:count], out.shapes[:count], rule.priorities, self.pending))

    def _cut(self) -> None:
        """All copies were reset: the windows of what they were doing end here."""
        segment = self.segments[-1] if self.segments else None
        if segment is None:
            return
        arrays = self._store.arrays
        rows = (
            segment.page * arrays.page_rows + (segment.stop - 1) * self._num_envs + np.arange(self._num_envs)
        )
        words = arrays.steps[rows].astype(np.int64)
        lanes = np.flatnonzero((words & (FINAL | LINKED)) == 0)
        for rule, table in self._rules:
            out = new_windows(room_for(len(lanes), len(lanes), rule.cut))
            cut_finals(arrays, rows[lanes], lanes, rule.cut, out)
            self._offer(rule, table, out)

    def _turn(self, page: int) -> None:
        with self._replay.lock:
            self._leased.popleft()
            while self._full_finals:
                self._store.release(self._full_finals.pop())
            while (
                len(self._reach) > 1
                and self._reach[0][0] not in self._leased
                and (self._first_step_after(self._reach[0][0]) <= self._committed - self._reach_steps)
            ):
                self._store.release(self._reach.popleft()[0])
            self._lease_rows()

    def _first_step_after(self, page: int) -> int:
        """The number of the first step that was committed after this page."""
        used = 0
        for held, _ in reversed(self._reach):
            if held == page:
                break
            used += int(self._store.arrays.pages[held, USED])
        return self._committed - used

    # ---- batches ---------------------------------------------------------------------------------------------------

    def take_batch(self, signature: Signature, observed: frozenset[str], ledger: EpisodeLedger) -> Batch:
        """The steps committed since the last call as a batch, copied out."""
        segments, self.segments = self.segments, []
        store, arrays = self._store, self._store.arrays
        with self._replay.lock:
            rows = np.concatenate([self._rows_of(segment) for segment in segments])
            after = self._rows_after(rows)
            words = arrays.steps[rows].astype(np.int64)
            versions = np.concatenate([self._versions_of(segment) for segment in segments])
        columns = {name: by_env(store.columns[name][rows]) for name in store.signature.columns}
        following = {name: by_env(store.columns[name][after]) for name in observed if name in columns}
        masked = (words & FINAL) != 0
        restarted = np.zeros(len(rows), np.bool_)
        restarted[1:] = ((words[1:] & STEP_MASK) == 0).all(1) & ~((words[:-1] & (FINAL | LINKED)) != 0).all(1)
        return make_batch(store.signature, columns, following, masked, restarted, versions, ledger, 0)

    def _rows_of(self, segment: Segment) -> NDArray[np.int64]:
        first = segment.page * self._store.arrays.page_rows
        steps = np.arange(segment.start, segment.stop)[:, None]
        return first + steps * self._num_envs + np.arange(self._num_envs)

    def _versions_of(self, segment: Segment) -> NDArray[np.int64]:
        first = segment.page * self._store.arrays.page_rows
        stamps: NDArray[np.int64] = self._store.versions[first + segment.start : first + segment.stop].astype(
            np.int64
        )
        return stamps

    def _rows_after(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the next observations stand; those of the last step are written, but not committed yet."""
        arrays = self._store.arrays
        after, known = np.empty((rows.size, 1), np.int64), np.empty((rows.size, 1), np.uint8)
        resolve(arrays, rows.reshape(-1), _ONE_STEP, False, after, known)
        after, known = after.reshape(rows.shape), known.reshape(rows.shape)
        last = rows[-1] + self._num_envs
        page = int(rows[-1, 0]) // arrays.page_rows
        if last[-1] >= page * arrays.page_rows + arrays.page_rows // self._num_envs * self._num_envs:
            last = int(arrays.pages[page, NEXT]) * arrays.page_rows + np.arange(self._num_envs)
        after[-1] = np.where(known[-1] == KNOWN, after[-1], last)
        return after

    def close(self) -> None:
        """Give all pages back; items keep what they hold."""
        with self._replay.lock:
            for page in (*(page for page, _ in self._reach), *self._finals, *self._full_finals):
                self._store.release(page)
            self._reach.clear()
            self._finals.clear()
            self._full_finals.clear()
