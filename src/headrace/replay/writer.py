"""Steps in, rows and items out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.errors import Closed, DeadlineExceeded
from headrace.replay.final_columns import FinalColumns
from headrace.replay.item_maker import ItemMaker
from headrace.replay.live_table import NewItems, Pending, wait_on
from headrace.replay.rules import ItemRule, check_priority
from headrace.spec import Signature, check_array
from headrace.store.block import LaneBlock
from headrace.store.columns import put_lanes, put_one
from headrace.store.pinning import pin_window
from headrace.store.window import follow

if TYPE_CHECKING:
    from headrace.replay.replay import Replay


class Writer:
    """Appends the steps of one or more lanes and makes items of them. Made by `Replay.writer`; one thread uses it.

    A step is visible once an item refers to it. `append` and `create_item` return when the item is queued; it is in
    its table as soon as the rate limiter lets it in, and `flush` waits for that. A writer is a context manager: leaving
    it flushes and closes.

    >>> import headrace as hr
    >>> table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=10)
    >>> with hr.Replay(hr.Signature.like({"reward": np.float32(0)}), [table]) as replay:
    ...     with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...         writer.append({"reward": 0.5})
    ...     len(replay.table("t"))
    1
    """

    def __init__(
        self,
        replay: Replay,
        lanes: int,
        items: Sequence[ItemRule],
        history: int | None,
        max_pending: int,
        timeout: float | None,
    ) -> None:
        self._closed = True  # Until everything below has succeeded.
        lanes = check_count("lanes", lanes, 1)
        max_pending = check_count("max_pending", max_pending, 1)
        history = None if history is None else check_count("history", history, 1)
        items = _checked_rules(items)
        self._replay = replay
        self._store = replay.store
        self._lock = replay.lock
        self._lanes = lanes
        self._history = _history(history, items, lanes, self._store.capacity)
        self._max_pending = max_pending
        self._timeout = timeout
        self._pending = Pending(replay.lock)
        self._items = ItemMaker(replay, items, self._pending)
        self._finals = FinalColumns(self._store.signature)
        self._blocks = _blocks(replay, lanes, self._history)
        self._only = self._blocks[0] if len(self._blocks) == 1 else None
        # Each block beside the first fills pages of its own, and may have ended in the middle of others.
        self._extra_pages = 2 * (len(self._blocks) - 1)
        self._store.allow(self._extra_pages)
        self._puts = _puts(self._store.signature, self._store.columns, lanes)
        self._flat = self._store.signature.is_flat
        # Columns with what a value must be to be written without a look at the table of casts.
        self._lane_columns = [
            (name, self._store.columns[name], spec.dtype, (lanes, *spec.shape), spec)
            for name, spec in self._store.signature.columns.items()
        ]
        self._closed = False
        replay.writer_opened(self)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append(self, step: Any) -> None:
        """Store one step of every lane, and make the items whose windows it completes: queued, when it returns.

        Args:
            step: a tree of the signature: one step for one lane; every leaf with a leading axis for several.

        Raises:
            SpecError: the step does not fit; nothing is stored and the writer goes on.
            StoreFull: no room; nothing is stored and the writer goes on when items leave.
            DeadlineExceeded: `max_pending` items wait already and none went in within the writer's timeout.
            Closed: the writer or the replay is closed.
        """
        if self._closed or self._replay.is_closed or self._pending.count >= self._max_pending:
            self._wait_to_append()
        block = self._only
        if block is None:
            self._append_blocks(step, None, None, ())
            return
        block.make_room()
        self._write(block.row, step)
        with self._lock:
            self._items.commit_and_make(block)

    def append_marked(
        self, step: Any, final: NDArray[np.bool_], idle: NDArray[np.bool_], given: Sequence[str]
    ) -> None:
        """As `append`, where some lanes hold the final row of their episode and some hold nothing.

        Args:
            step: as for `append`.
            final: bool[lanes]: the lane's episode ends with this row; only the columns `given` are kept of it.
            idle: bool[lanes]: nothing is stored of the lane, whose episode has ended.
            given: names of columns.
        """
        if self._closed or self._replay.is_closed or self._pending.count >= self._max_pending:
            self._wait_for_room()
        self._replay.note_given(given)
        self._append_blocks(step, final, idle, given)

    def _append_blocks(
        self, step: Any, final: NDArray[np.bool_] | None, idle: NDArray[np.bool_] | None, given: Sequence[str]
    ) -> None:
        values = self._store.signature.validate(step, (self._lanes,))
        for block in self._blocks:
            block.make_room()
        first = 0
        with self._lock:
            for block in self._blocks:
                lanes = slice(first, first + block.lanes)
                first += block.lanes
                rows = slice(block.row, block.row + block.lanes)
                for name, value in values.items():
                    self._store.columns[name][rows] = value[lanes]
                if final is None or idle is None:
                    self._items.commit_and_make(block)
                else:
                    self._blank(block, final[lanes], idle[lanes], given)
                    block.commit_marked(final[lanes], idle[lanes])
                    self._items.make_marked(block, int(final[lanes].sum()))

    def _blank(
        self, block: LaneBlock, final: NDArray[np.bool_], idle: NDArray[np.bool_], given: Sequence[str]
    ) -> None:
        for name, column in self._store.columns.items():
            blank = idle if name in given else final | idle
            column[block.row + np.flatnonzero(blank)] = 0

    def _write(self, row: int, step: Any) -> None:
        if self._flat and type(step) is dict and len(step) == len(self._puts):
            try:
                if self._lanes > 1:
                    self._write_lanes(row, step)
                else:
                    for name, put in self._puts:
                        put(row, step[name])
                return
            except KeyError:
                pass  # `flatten` says what is missing.
        values = self._store.signature.flatten(step)
        for name, put in self._puts:
            put(row, values[name])

    def _write_lanes(self, row: int, step: dict[str, Any]) -> None:
        rows = slice(row, row + self._lanes)
        for name, column, dtype, shape, spec in self._lane_columns:
            value = step[name]
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                value = check_array(value, spec, name, (self._lanes,))
            column[rows] = value

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """The episode of a lane is over; the next step appended to it begins another.

        Args:
            final: the last observation: a partial step such as `{"observation": ...}`, stored as the final row with
                zeros in the other columns; or the observation alone. None: it is not known.
            lane: which; None ends the only lane's, or those of all lanes (then leaves have a leading axis).

        Raises:
            ValueError: no such lane, or one that has no step since its last end.
            SpecError: `final` does not fit; nothing changed.
        """
        self._check_open()
        lanes = np.arange(self._lanes) if lane is None else np.array([check_count("lane", lane, 0)])
        if lane is not None:
            self._block_of(lane)
        empty = [int(each) for each in lanes if not self._open_steps(int(each))]
        if empty:
            raise ValueError(
                f"end_episode: lanes {empty} have no step since their last episode ended; append one first"
            )
        leading = () if lane is not None or self._lanes == 1 else (self._lanes,)
        values = None if final is None else self._finals.read(final, leading)
        if values is not None and not leading:
            values = {name: value[None] for name, value in values.items()}
        self.end_lanes(lanes, values)

    def end_lanes(self, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]] | None) -> None:
        """End the episodes of these lanes, whose last step was the last transition.

        Args:
            lanes: int64[m], rising.
            values: column to array [m, ...]: what the final rows hold beside zeros; None makes no final rows.

        Raises:
            StoreFull: no room for the final rows; nothing changed for the lanes that it names.
        """
        if values is not None:
            self._replay.note_given(values)
        first = 0
        for block in self._blocks:
            here = (lanes >= first) & (lanes < first + block.lanes)
            if here.any():
                picked = None if values is None else {name: value[here] for name, value in values.items()}
                self._end_in_block(block, lanes[here] - first, picked)
            first += block.lanes

    def cut_open_lanes(self) -> None:
        """End the episodes that are under way, without a final row: what comes next has nothing to do with them."""
        open_lanes = [lane for lane in range(self._lanes) if self._open_steps(lane)]
        if open_lanes:
            self.end_lanes(np.array(open_lanes, np.int64), None)

    def _end_in_block(
        self, block: LaneBlock, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]] | None
    ) -> None:
        if values is None:
            with self._lock:
                rows = np.array([block.tail(int(lane)) for lane in lanes], np.int64)
                for lane in lanes:
                    block.end_without_final(int(lane))
                self._items.make_last(rows, lanes)
        elif block.lanes == 1:
            block.make_room()
            self._fill_finals(block.row, 1, values, 0)
            with self._lock:
                block.commit_final()
                self._items.make_marked(block, 1)
        else:
            self._end_beside(block, lanes, values)

    def _end_beside(
        self, block: LaneBlock, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]]
    ) -> None:
        """Final rows of some lanes of a block stand in a page of their own: a step of the block has one row a lane."""
        done = 0
        while done < len(lanes):
            with self._lock:
                first, room = block.make_room_for_finals()
                some = lanes[done : done + room]
                self._fill_finals(first, len(some), values, done)
                rows = block.last + some
                block.commit_finals(some, first)
                self._items.make_last(rows, some)
            done += len(some)

    def _fill_finals(self, row: int, count: int, values: Mapping[str, NDArray[Any]], start: int) -> None:
        for name, column in self._store.columns.items():
            given = values.get(name)
            column[row : row + count] = 0 if given is None else given[start : start + count]

    def _open_steps(self, lane: int) -> int:
        block, inner = self._block_of(lane)
        return int(block.lane_steps[inner])

    def _block_of(self, lane: int) -> tuple[LaneBlock, int]:
        inner = lane
        for block in self._blocks:
            if inner < block.lanes:
                return block, inner
            inner -= block.lanes
        raise ValueError(f"lane: expected 0 to {self._lanes - 1}, got {lane}")

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(self, table: str, length: int, priority: float = 1.0, lane: int = 0) -> int:
        """Make an item of the last `length` rows of a lane: queued, when it returns.

        Returns:
            Its key, at once; the item is in its table when the rate limiter has let it in (`flush` waits for that).

        Raises:
            ValueError: fewer rows in reach, a window across the end of an episode, or a bad priority; nothing is made.
            DeadlineExceeded: `max_pending` items wait already and none went in within the writer's timeout.
        """
        self._check_open()
        live = self._replay.live_table(table)
        check_priority(priority)
        length = check_count("length", length, 1)
        if self._pending.count >= self._max_pending:
            self._wait_for_room()
        block, inner = self._block_of(check_count("lane", lane, 0))
        with self._lock:
            tail = block.tail(inner)
            start = (
                follow(self._store.arrays, tail, 1 - length) if tail >= 0 and length <= self._history else -1
            )
            if start < 0:
                raise ValueError(
                    f"length: the last {length} rows of lane {lane} are not one window: a window lies in one episode "
                    f"and among the newest {self._history} rows of its writer (history)"
                )
            pin_window(self._store.arrays, start, length, 1)
            key = self._replay.new_keys(1)
            windows = np.array([[length, 0, 0]], np.uint32)
            live.offer(NewItems(key, np.array([start]), windows, np.array([float(priority)]), self._pending))
        return key

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """How many lanes it appends to."""
        return self._lanes

    @property
    def policy_version(self) -> int:
        """The version stored with each step from now on."""
        return self._blocks[0].version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        for block in self._blocks:
            block.version = version

    @property
    def pending(self) -> int:
        """How many items wait for a rate limiter."""
        return self._pending.count

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """Return when every item is applied: in its table. A replay with a `path` keeps it when the process is killed.

        Args:
            timeout: in seconds; None waits for ever.
            durable: also wait until everything that was applied is on the disk, where it survives the machine. A replay
                in memory cannot: ValueError.

        Raises:
            DeadlineExceeded: tells how many items wait for which table; they stay pending.
            Closed: the replay was closed; tells how many items were refused.
        """
        if durable and not self._replay.is_on_disk:
            raise ValueError("durable=True: this replay lives in memory, which does not survive the machine")
        self._wait_while(lambda: self._pending.count > 0, timeout)
        if self._pending.refused:
            raise Closed(f"the replay was closed: {self._pending.refused} items of this writer were refused")
        if durable:
            self._replay.sync()

    def close(self, timeout: float | None = None) -> None:
        """Flush (so every item is applied), then give up what only this writer holds. A second call does nothing.

        Raises:
            DeadlineExceeded: tells how many items were not inserted.
            Closed: the replay was closed before all items were in.
        """
        if self._closed:
            return
        try:
            self.flush(timeout)
        except Closed:
            self._release()  # What was refused stays refused; only a deadline leaves something to try again.
            raise
        self._release()

    def _release(self) -> None:
        self._closed = True
        self._replay.writer_closed(self)
        with self._lock:
            self._store.allow(-self._extra_pages)
            for block in self._blocks:
                for page in block.release():
                    self._store.release(page)

    def _check_open(self) -> None:
        if self._closed or self._replay.is_closed:
            raise Closed("the writer is closed" if self._closed else "the replay is closed")

    def _wait_for_room(self) -> None:
        self._check_open()
        self._wait_while(lambda: self._pending.count >= self._max_pending, self._timeout)
        self._check_open()

    def _wait_to_append(self) -> None:
        self._check_open()
        steps = np.concatenate([block.lane_steps for block in self._blocks]).astype(np.int64)
        if self._items.makes_items_of_the_next_step(steps):
            self._wait_for_room()

    def _wait_while(self, condition: Any, timeout: float | None) -> None:
        clock = self._replay.clock
        with self._lock:
            begin = clock.monotonic()
            while condition():
                left = None if timeout is None else timeout - (clock.monotonic() - begin)
                if left is not None and left <= 0:
                    raise DeadlineExceeded(self._pending_message(timeout), pending=self._pending.count)
                wait_on(self._pending.changed, clock, left)

    def _pending_message(self, timeout: float | None) -> str:
        waiting = ", ".join(
            f"{count} for table {name!r}" for name, count in self._pending.by_table.items() if count
        )
        return (
            f"{self._pending.count} items of this writer are still pending after {timeout} s: {waiting}. They stay "
            "queued; sample from the table, raise its rate limiter's bound, or wait longer"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif not self._closed:
            self._release()
            self._warn_pending()

    def _warn_pending(self) -> None:
        if self._pending.count:
            warnings.warn(
                f"a writer was left with {self._pending.count} items pending; they go in when their tables open",
                ResourceWarning,
                stacklevel=3,
            )

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._warn_pending()
            self._store.allow(-self._extra_pages)
            for block in self._blocks:
                self._store.drop(block.release())

    def __repr__(self) -> str:
        rules = ", ".join(repr(rule) for rule in self._items.rules)
        state = "closed" if self._closed else "open"
        return f"<Writer of {self._lanes} lanes, {state}, items: [{rules}]>"


def _checked_rules(items: Sequence[ItemRule]) -> list[ItemRule]:
    if isinstance(items, ItemRule):
        raise TypeError("items: expected a list of ItemRule, got one; put it into a list")
    for rule in items:
        if not isinstance(rule, ItemRule):
            raise TypeError(f"items: expected an ItemRule, got {rule!r}")
    return list(items)


def _history(history: int | None, items: Sequence[ItemRule], lanes: int, capacity: int | None) -> int:
    """How many of its newest rows a lane keeps in reach (replay I2)."""
    longest = max((rule.reach for rule in items), default=0)
    if history is None:
        return longest or max(1, min(1000, 1000 if capacity is None else capacity // 4 // lanes))
    if history < max(1, longest):
        raise ValueError(
            f"history: expected at least {max(1, longest)}, the reach of the item rules, got {history}"
        )
    return history


def _blocks(replay: Replay, lanes: int, history: int) -> list[LaneBlock]:
    """The lanes, in as few blocks as pages have room for."""
    most = replay.store.arrays.page_rows
    sizes = [most] * (lanes // most) + ([lanes % most] if lanes % most else [])
    return [LaneBlock(replay.store, size, history) for size in sizes]


def _puts(signature: Signature, columns: Mapping[str, NDArray[Any]], lanes: int) -> list[tuple[str, Any]]:
    specs = signature.columns
    if lanes == 1:
        return [(name, put_one(columns[name], spec, name)) for name, spec in specs.items()]
    return [(name, put_lanes(columns[name], spec, name, lanes)) for name, spec in specs.items()]
