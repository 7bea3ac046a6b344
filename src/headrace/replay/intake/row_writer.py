"""The writer of rows of a replay of this process."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, check_seconds
from headrace.ends import EndOfEpisode
from headrace.errors import Closed
from headrace.replay.intake.intake import Intake, any_set
from headrace.replay.intake.lane_count import checked_lanes
from headrace.replay.intake.selection import Selection
from headrace.replay.intake.step_rows import Values
from headrace.replay.intake.writer_like import Made
from headrace.replay.replay import ReplayCore
from headrace.replay.waiter import wait_until_pending
from headrace.store.block import EpisodeBoundary, LaneBlock, WrittenSteps
from headrace.tables.description.rules import Rule, check_priority, checked_rules
from headrace.tables.description.window_rule import END_NUMBERS
from headrace.tables.pending import Pending

_NO_ROWS: NDArray[np.int64] = np.empty(0, np.int64)


class RowWriter:
    """Writes rows into the pages of a replay of this process, and makes items of them: see `WriterLike`.

    Args: as `Replay.writer`.
    """

    def __init__(
        self,
        replay: ReplayCore,
        lanes: int,
        items: Sequence[Rule],
        history: int | None,
        max_pending: int,
        timeout: float | None,
    ) -> None:
        self._closed = True  # Until everything below has succeeded.
        replay.check_open()
        lanes = checked_lanes(lanes, replay.signature)
        max_pending = check_count("max_pending", max_pending, 1)
        history = None if history is None else check_count("history", history, 1)
        items = checked_rules(items)
        for rule in items:
            replay.live_table(rule.table)
        self._timeout = check_seconds(timeout)
        self._replay = replay
        self._lifetime = replay.lifetime
        self._store = replay.store
        self._arena = self._store.arena
        self._lock = replay.lock
        self._history = _history(history, items, lanes, self._store.capacity)
        self._max_pending = max_pending
        self._pending = self._new_pending()
        self._intake = self._new_intake(replay, lanes, items, self._history, self._pending)
        self._lanes = self._intake.lanes
        self._rows = self._intake.rows
        self._write = self._rows.write
        blocks = self._lanes.blocks
        self._only = blocks[0] if len(blocks) == 1 else None
        self._only_lanes = blocks[0].kernel
        self._no_finals = np.zeros(lanes, np.bool_)
        self._closed = False
        replay.writers.opened(self)

    def _new_pending(self) -> Pending:
        return Pending(self._replay.clock.monotonic)

    _new_intake: type[Intake] = Intake

    # ---- declarations ----------------------------------------------------------------------------------------------

    def declare_final_columns(self, columns: Iterable[str]) -> None:
        """See `WriterLike.declare_final_columns`."""
        self._replay.declarations.declare_final_columns(columns)

    def declare_padding(self, table: str, values: Mapping[str, Any]) -> None:
        """See `WriterLike.declare_padding`."""
        self._replay.live_table(table)
        self._replay.declarations.declare_padding(table, values)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append(self, step: Any) -> None:
        """See `WriterLike.append`."""
        if self._closed or self._lifetime.is_closed or self._pending.count >= self._max_pending:
            self._check_open()
            self._rows.check(step)  # A step that does not fit is not worth a wait.
            self._wait_to_append()
        block = self._only
        if block is None:
            self._append_to_blocks(self._rows.checked(step))
            return
        lanes, arena = self._only_lanes, self._arena
        if lanes.begin_step():
            block.make_room()
        row, moved = lanes.row, arena.moved
        self._write(row, step)
        with self._lock:
            if arena.moved != moved:
                # The rows were moved meanwhile, and what was written may be lost
                # (test_a_step_written_while_the_rows_move_is_whole).
                self._write(row, step)
            if lanes.row != row:
                lanes.refuse()
            self._intake.commit(block)
        if self._intake.refused is not None or self._intake.is_given:
            self._intake.finish_call()

    def wait_to_append(self) -> None:
        """See `WriterLike.wait_to_append`."""
        if self._closed or self._lifetime.is_closed or self._pending.count >= self._max_pending:
            self._wait_to_append()

    @property
    def steps(self) -> int:
        """See `WriterLike.steps`."""
        return sum(block.kernel.committed for block in self._lanes.blocks)

    def append_checked(self, step: Mapping[str, Any]) -> int:
        """See `WriterLike.append_checked`."""
        if self._closed or self._lifetime.is_closed:
            self._check_open()
        block = self._only
        if block is None:
            self._append_to_blocks(step)
            return self.steps
        lanes, arena = self._only_lanes, self._arena
        if lanes.begin_step():
            block.make_room()
        moved = arena.moved
        self._rows.put(lanes.row, step)
        with self._lock:
            if arena.moved != moved:
                # See `append` (test_a_checked_step_written_while_the_rows_move_is_whole).
                self._rows.put(lanes.row, step)
            self._intake.commit(block)
        if self._intake.refused is not None or self._intake.is_given:
            self._intake.finish_call()
        return lanes.committed

    def _append_to_blocks(self, values: Values) -> None:
        """Appends a step of several blocks, whose columns fit."""
        self._make_room(self._lanes.spans)
        with self._lock:
            self._lifetime.check_open()
            self._intake.append(values, self._lanes.spans)
        self._intake.finish_call()

    @property
    def staged(self) -> Values:
        """See `WriterLike.staged`."""
        return self._rows.staged

    def append_rows(self, rows: Values, final: NDArray[np.bool_]) -> int:
        """See `WriterLike.append_rows`."""
        self._check_open()
        (block,) = self._lanes.blocks
        block.make_room(1 if final[0] else 2)
        count = min(len(final), block.kernel.stop - block.row)
        if count == block.steps_ahead and not final[count - 1]:
            count -= 1
        self._append_written(rows, count, np.flatnonzero(final[:count]))
        return count

    def _append_written(self, steps: Values, count: int, final: NDArray[np.int64]) -> None:
        """Appends steps for which the present page of the only block has rows.

        Args:
            steps: maps every column to an array `[at least count, N, ...]`; there may be no axis of lanes for one lane.
            count: number of steps.
            final: rows that are final rows; see `WrittenSteps`.
        """
        (block,) = self._lanes.blocks
        rows = slice(block.row, block.row + count * block.lanes)
        page = rows.start // self._store.arrays.page_rows
        versions = np.full(count, self.policy_version, np.int32)
        written = WrittenSteps(page, count, final, _NO_ROWS, _NO_ROWS, _NO_ROWS, versions)
        moved = self._arena.moved
        self._put_steps(rows, steps, count)
        with self._lock:
            self._intake.check_tables()
            if self._arena.moved != moved:
                # See `append` (test_rows_written_while_the_rows_move_are_whole).
                self._put_steps(rows, steps, count)
            if block.row != rows.start:
                block.kernel.refuse()
            self._intake.commit_written(written)
        self._intake.finish_call()

    def _put_steps(self, rows: slice, steps: Values, count: int) -> None:
        for name, column in self._store.columns.items():
            # Not -1: the number of rows of an empty column does not follow from its size.
            column[rows] = steps[name][:count].reshape(rows.stop - rows.start, *column.shape[1:])

    @property
    def open_lanes(self) -> NDArray[np.bool_]:
        """See `WriterLike.open_lanes`."""
        return self._lanes.steps > 0

    def make_room(self, steps: int = 1, ended: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.make_room`."""
        self._check_open()
        if steps:
            self._make_room(self._lanes.spans, steps)
        for block, lanes, _ in () if ended is None else self._lanes.by_block(ended):
            if len(lanes) == block.lanes:
                block.make_room(steps + 1)
            else:
                block.hold_pages_for_finals(len(lanes))

    def _make_room(self, spans: Sequence[tuple[LaneBlock, slice]], steps: int = 1) -> None:
        for block, _ in spans:
            block.make_room(steps)

    def append_ends(
        self, step: Values, idle: NDArray[np.bool_], ended: NDArray[np.int64], finals: Values
    ) -> None:
        """See `WriterLike.append_ends`."""
        self._check_open()
        if finals:
            self._replay.declarations.declare_final_columns(finals)
        spans = self._lanes.spans
        if any_set(idle):
            spans = [(block, lanes) for block, lanes in spans if 0 in idle[lanes].tobytes()]
        self._make_room(spans)
        with self._lock:
            self._lifetime.check_open()
            self._intake.append_ends(step, spans, EpisodeBoundary(self._no_finals, idle, ended, -1), finals)
        self._intake.finish_call()

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """See `WriterLike.end_episode`."""
        self._check_open()
        steps = self._lanes.steps
        lanes = np.arange(len(steps)) if lane is None else np.array([check_count("lane", lane, 0)])
        if lane is not None:
            self._lanes.find(lane)
        empty = lanes[steps[lanes] == 0].tolist()
        if empty:
            raise ValueError(
                f"end_episode: lanes {empty} have no step since their last episode ended; append one first"
            )
        self.end_lanes(lanes, None if final is None else self._rows.checked_finals(final, len(lanes)))

    def end_lanes(self, lanes: NDArray[np.int64], values: Values | None) -> None:
        """See `WriterLike.end_lanes`."""
        self._check_open()
        if values is not None:
            self._replay.declarations.declare_final_columns(values)
        with self._lock:
            self._lifetime.check_open()
            if values is None:
                self._intake.cut(lanes)
            else:
                self._intake.require_finals(lanes, 0)
                self._intake.end(lanes, values)
        self._intake.finish_call()

    def cut_open_lanes(self, end: EndOfEpisode | None = None) -> None:
        """See `WriterLike.cut_open_lanes`."""
        self._check_open()
        with self._lock:
            self._lifetime.check_open()
            lanes = np.flatnonzero(self._lanes.steps)
            self._intake.cut(lanes, None if end is None else END_NUMBERS[end])
            self._intake.end_streams(lanes)
        self._intake.finish_call()

    def drop_open_lanes(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.drop_open_lanes`."""
        self._check_open()
        with self._lock:
            self._lifetime.check_open()
            is_open = np.flatnonzero(self._lanes.steps)
            self._intake.drop(is_open if lanes is None else np.intersect1d(lanes, is_open))
            self._intake.end_streams(self._every_lane(lanes))

    def end_streams(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.end_streams`."""
        self._check_open()
        with self._lock:
            self._lifetime.check_open()
            self._intake.end_streams(self._every_lane(lanes))

    def _every_lane(self, lanes: NDArray[np.int64] | None) -> NDArray[np.int64]:
        return np.arange(self.lanes) if lanes is None else lanes

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(self, table: str, length: int, priority: float | None = None, lane: int = 0) -> int:
        """See `WriterLike.create_item`."""
        return self._create_item(table, length, priority, lane, None)

    def _create_item(
        self, table: str, length: int, priority: float | None, lane: int, given_key: int | None
    ) -> int:
        self._check_open()
        self._replay.live_table(table)
        if priority is not None:
            check_priority(priority)
        length, lane = check_count("length", length, 1), check_count("lane", lane, 0)
        self._lanes.find(lane)
        key = -1
        if length <= self._history:
            if self._pending.count >= self._max_pending and self._has_window(length, lane):
                self._wait_for_room()
            with self._lock:
                self._lifetime.check_open()
                key = self._intake.create_item(table, length, priority, lane, given_key)
        if key < 0:
            raise ValueError(
                f"length: the last {length} rows of lane {lane} are not one window: a window lies in one episode "
                f"and among the newest {self._history} rows of its writer (history)"
            )
        return key

    def _has_window(self, length: int, lane: int) -> bool:
        with self._lock:
            self._lifetime.check_open()
            return self._intake.first_of_last(length, lane) >= 0

    def record_items(self) -> None:
        """See `WriterLike.record_items`."""
        self._intake.made = []

    def give_priorities(
        self,
        priorities: Mapping[int, NDArray[np.float64]],
        lanes: Mapping[int, NDArray[np.int64]] | None = None,  # noqa: ARG002 - they follow from the rules
    ) -> None:
        """See `WriterLike.give_priorities`."""
        self._intake.give_priorities(priorities)

    def select_windows(self, selection: Selection) -> None:
        """See `WriterLike.select_windows`."""
        self._intake.select(selection)

    def take_made(self) -> list[Made]:
        """See `WriterLike.take_made`."""
        made = self._intake.made
        if not made:
            return []
        self._intake.made = []
        return made

    def raise_refused(self) -> None:
        """See `WriterLike.raise_refused`."""
        self._intake.raise_refused()

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """See `WriterLike.lanes`."""
        return self._lanes.count

    @property
    def policy_version(self) -> int:
        """See `WriterLike.policy_version`."""
        return self._only_lanes.version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        for block in self._lanes.blocks:
            block.kernel.version = version

    @property
    def pending(self) -> int:
        """See `WriterLike.pending`."""
        return self._pending.count

    def pending_from(self, least: int) -> int:  # noqa: ARG002 - it is known at once
        """See `WriterLike.pending_from`."""
        return self._pending.count

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """See `WriterLike.flush`."""
        if durable and not self._replay.is_on_disk:
            raise ValueError("durable=True: this replay lives in memory, which does not survive the machine")
        self._flush(check_seconds(timeout))
        self._lifetime.check_open()
        if durable:
            self._replay.sync()

    def _flush(self, timeout: float | None) -> None:
        if self._lifetime.is_inherited:
            self._lifetime.check_open()
        self._wait_for_pending(0, timeout)
        self._pending.raise_failure()
        if self._pending.refused:
            raise Closed(f"the replay was closed: {self._pending.refused} items of this writer were refused")

    def wait_pending(self, most: int, timeout: float | None) -> None:
        """See `WriterLike.wait_pending`."""
        if self._pending.count > most:
            self._wait_for_pending(most, timeout)
            self._check_open()

    def close(self, timeout: float | None = None) -> None:
        """See `WriterLike.close`."""
        if self._closed:
            return
        try:
            self._flush(check_seconds(timeout))
        except Closed:
            self._release()  # Refused items stay refused; only after a deadline is there an item to try again.
            raise
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._replay.writers.closed(self)
        with self._lock:
            self._store.allow(-self._lanes.extra_pages)
            self._lanes.leave()
            for page in self._lanes.release():
                self._store.release(page)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the writer is closed")
        if self._lifetime.is_closed:
            self._lifetime.check_open()

    def _wait_for_room(self) -> None:
        self._check_open()
        self._wait_for_pending(self._max_pending - 1, self._timeout)
        self._check_open()

    def _wait_to_append(self) -> None:
        self._check_open()
        if self._intake.makes_items_of_the_next_step():
            self._wait_for_room()

    @property
    def lacks_memory(self) -> bool:
        """Whether pending items wait for memory or disk space."""
        return bool(self._pending.without_memory)

    def insert_pending(self) -> None:
        """Tries again to insert the pending items that wait for memory or disk space."""
        with self._lock:
            for table in tuple(self._pending.without_memory):
                self._replay.live_table(table).apply_pending()

    def _wait_for_pending(self, most: int, timeout: float | None) -> None:
        if self.lacks_memory:
            self.insert_pending()
        wait_until_pending(self._pending, most, self._lock, self._replay.clock, timeout)

    def abandon(self) -> None:
        """See `WriterLike.abandon`."""
        if not self._closed:
            self._release()
            self._warn_pending()

    def _warn_pending(self) -> None:
        if self._pending.count and not self._lifetime.is_inherited:
            warnings.warn(
                f"a writer was left with {self._pending.count} items pending; they go in when their tables open",
                ResourceWarning,
                stacklevel=4,
            )

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._warn_pending()
            # No lock here: another thread may hold it, which waits for this one.
            self._store.drop(self._lanes.release(), self._lanes.extra_pages)

    def __repr__(self) -> str:
        rules = ", ".join(repr(rule) for rule in self._intake.rules)
        state = "closed" if self._closed else "open"
        return f"<Writer of {self.lanes} lanes, {state}, items: [{rules}]>"


def _history(history: int | None, items: Sequence[Rule], lanes: int, capacity: int | None) -> int:
    """Returns the number of newest rows that a lane keeps in reach."""
    # Rules: replay I2
    longest = max((rule.reach for rule in items), default=0)
    if history is None:
        return longest or max(1, min(1000, 1000 if capacity is None else capacity // 4 // lanes))
    if history < max(1, longest):
        raise ValueError(
            f"history: expected at least {max(1, longest)}, the reach of the item rules, got {history}"
        )
    return history
