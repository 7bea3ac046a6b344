"""The writer of rows of several shards: each lane belongs to one of them."""

# Rules: collectors CY4

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.clock import Clock
from headrace.ends import EndOfEpisode
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.replay.intake.final_columns import FinalColumns
from headrace.replay.intake.selection import Selection
from headrace.replay.intake.single_rows import append_transition
from headrace.replay.intake.writer_like import UNKNOWN_STEPS, Made, WriterLike
from headrace.replay.interface import ReplayLike
from headrace.replay.shards.lane_part import LanePart, Values
from headrace.replay.shards.shard import Shard
from headrace.spec import Signature


class ShardedRowWriter:
    """Writes each lane to its shard: see `WriterLike`. One thread uses it.

    A step is checked as a whole, and every shard has made room for its part, before any part is stored.

    Args:
        signature: of a step.
        lanes: number of lanes.
        shards: of the replay.
        first_lane: number of the first lane among those of all writers; lane l belongs to shard `l % len(shards)`.
        open_writer: returns a shard's writer of so many lanes.
        check_open: raises if the replay is closed.
        clock: for deadlines.
    """

    def __init__(
        self,
        signature: Signature,
        lanes: int,
        shards: Sequence[Shard],
        first_lane: int,
        open_writer: Callable[[ReplayLike, int], WriterLike],
        check_open: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._signature = signature
        self._lanes = lanes
        self._num_shards = len(shards)
        self._open_writer = open_writer
        self._check_replay = check_open
        self._clock = clock
        self._finals = FinalColumns(signature)
        self._begun = self._stored = 0
        # A writer that is opened again is told the same as the first one.
        self._version = 0
        self._is_recording = False
        self._final_columns: tuple[str, ...] = ()
        self._paddings: dict[str, Mapping[str, Any]] = {}
        self._closed = False
        self._parts = [
            LanePart(shards[(first_lane + first) % len(shards)], first, len(shards), lanes, self._new_writer)
            for first in range(min(lanes, len(shards)))
        ]

    def _new_writer(self, replay: ReplayLike, lanes: int) -> WriterLike:
        writer = self._open_writer(replay, lanes)
        writer.policy_version = self._version
        if self._is_recording:
            writer.record_items()
        if self._final_columns:
            writer.declare_final_columns(self._final_columns)
        for table, values in self._paddings.items():
            writer.declare_padding(table, values)
        return writer

    # ---- settings --------------------------------------------------------------------------------------------------

    @property
    def lanes(self) -> int:
        """See `WriterLike.lanes`."""
        return self._lanes

    @property
    def policy_version(self) -> int:
        """See `WriterLike.policy_version`."""
        return self._version

    @policy_version.setter
    def policy_version(self, version: int) -> None:
        self._version = version
        self._each(lambda writer: setattr(writer, "policy_version", version))

    def declare_final_columns(self, columns: Iterable[str]) -> None:
        """See `WriterLike.declare_final_columns`."""
        self._check_open()
        given = tuple(columns)
        self._each(lambda writer: writer.declare_final_columns(given))
        self._final_columns = given

    def declare_padding(self, table: str, values: Mapping[str, Any]) -> None:
        """See `WriterLike.declare_padding`."""
        self._check_open()
        self._each(lambda writer: writer.declare_padding(table, values))
        self._paddings[table] = values

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append(self, step: Any) -> None:
        """See `WriterLike.append`."""
        self._check_open()
        checked = self._signature.validate(step, (self._lanes,) if self._lanes > 1 else ())
        self.wait_to_append()
        self._append(checked)

    def wait_to_append(self) -> None:
        """See `WriterLike.wait_to_append`."""
        self._check_open()
        self._each(lambda writer: writer.wait_to_append())

    @property
    def steps(self) -> int:
        """See `WriterLike.steps`."""
        return self._stored if self._begun == self._stored else UNKNOWN_STEPS

    def append_checked(self, step: Mapping[str, Any]) -> int:
        """See `WriterLike.append_checked`."""
        self._check_open()
        self._append(step)
        return self._stored

    def _append(self, step: Mapping[str, Any]) -> None:
        self.make_room()
        self._store(lambda part: part.append(step))

    def append_rows(self, rows: Values, final: NDArray[np.bool_]) -> int:
        """See `WriterLike.append_rows`."""
        return append_transition(self, rows, final, self._final_columns)

    @property
    def staged(self) -> Values:
        """See `WriterLike.staged`."""
        return {}

    @property
    def open_lanes(self) -> NDArray[np.bool_]:
        """See `WriterLike.open_lanes`."""
        is_open = np.zeros(self._lanes, np.bool_)
        for part in self._parts:
            is_open[part.open_lanes()] = True
        return is_open

    def make_room(self, steps: int = 1, ended: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.make_room`."""
        self._check_open()
        for part in self._parts:
            part.make_room(steps, ended)

    def append_ends(
        self, step: Values, idle: NDArray[np.bool_], ended: NDArray[np.int64], finals: Values
    ) -> None:
        """See `WriterLike.append_ends`."""
        self._check_open()
        if finals:
            self.declare_final_columns(finals)
        self.make_room(1, ended)
        self._store(lambda part: part.append_ends(step, idle, ended, finals))

    def _store(self, store: Callable[[LanePart], None]) -> None:
        """Stores a step: if a part fails, the others are stored, and the error is raised then."""
        self._begun = self._stored + 1
        failure: Exception | None = None
        for part in self._parts:
            try:
                store(part)
            except Exception as error:
                failure = failure or error
        self._stored = self._begun
        if failure is not None:
            raise failure

    # ---- ends of episodes ------------------------------------------------------------------------------------------

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """See `WriterLike.end_episode`."""
        self._check_open()
        lanes = np.arange(self._lanes) if lane is None else np.array([self._checked_lane(lane)])
        empty = lanes[~self.open_lanes[lanes]].tolist()
        if empty:
            raise ValueError(
                f"end_episode: lanes {empty} have no step since their last episode ended; append one first"
            )
        self.end_lanes(lanes, None if final is None else self._checked_finals(final, len(lanes)))

    def _checked_lane(self, lane: int) -> int:
        lane = check_count("lane", lane, 0)
        if lane >= self._lanes:
            raise ValueError(f"lane: expected 0 to {self._lanes - 1}, got {lane}")
        return lane

    def _checked_finals(self, final: Any, count: int) -> Values:
        if count > 1:
            return self._finals.read(final, (count,))
        return {name: value[None] for name, value in self._finals.read(final, ()).items()}

    def end_lanes(self, lanes: NDArray[np.int64], values: Values | None) -> None:
        """See `WriterLike.end_lanes`."""
        self._check_open()
        if values is not None:
            self.declare_final_columns(values)
            self.make_room(0, lanes)
        for part in self._parts:
            part.end_lanes(lanes, values)

    def cut_open_lanes(self, end: EndOfEpisode | None = None) -> None:
        """See `WriterLike.cut_open_lanes`."""
        self._check_open()
        self._each(lambda writer: writer.cut_open_lanes(end))
        for part in self._parts:
            part.close_lanes()

    def drop_open_lanes(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.drop_open_lanes`."""
        self._check_open()
        for part in self._parts:
            part.drop_lanes(lanes)

    def end_streams(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.end_streams`."""
        self._check_open()
        for part in self._parts:
            part.end_streams(lanes)

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(self, table: str, length: int, priority: float | None = None, lane: int = 0) -> int:
        """See `WriterLike.create_item`.

        Raises:
            Disconnected: the shard of the lane is down; the item is not made.
        """
        self._check_open()
        lane = self._checked_lane(lane)
        part = next(part for part in self._parts if len(part.own(np.array([lane]))[0]))
        own = int(part.own(np.array([lane]))[1][0])
        key = part.ask(lambda writer: writer.create_item(table, length, priority, own))
        if key is None:
            raise Disconnected(
                f"create_item: shard {part.shard.number} of lane {lane} is down; the item is not made"
            )
        return key * self._num_shards + part.shard.number

    def give_priorities(
        self,
        priorities: Mapping[int, NDArray[np.float64]],
        lanes: Mapping[int, NDArray[np.int64]] | None = None,
    ) -> None:
        """See `WriterLike.give_priorities`."""
        if lanes is None and self._lanes == 1:
            lanes = {rule: np.zeros(len(values), np.int64) for rule, values in priorities.items()}
        elif lanes is None:
            lanes = dict.fromkeys(priorities, np.arange(self._lanes))
        for part in self._parts:
            part.give_priorities(priorities, lanes)

    def select_windows(self, selection: Selection) -> None:
        """See `WriterLike.select_windows`."""
        for part in self._parts:
            part.select_windows(selection)

    def record_items(self) -> None:
        """See `WriterLike.record_items`."""
        self._is_recording = True
        self._each(lambda writer: writer.record_items())

    def take_made(self) -> list[Made]:
        """See `WriterLike.take_made`; the items of one shard after those of another."""
        made: list[Made] = []
        for part in self._parts:
            number = part.shard.number
            for rule, keys in part.ask(lambda writer: list(writer.take_made())) or ():
                first, stop = (key * self._num_shards + number for key in (keys.start, keys.stop))
                made.append((rule, range(first, stop, self._num_shards * keys.step)))
        return made

    def raise_refused(self) -> None:
        """See `WriterLike.raise_refused`."""
        self._each(lambda writer: writer.raise_refused())

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """See `WriterLike.pending`."""
        return sum(part.ask(lambda writer: writer.pending) or 0 for part in self._parts)

    def pending_from(self, least: int) -> int:  # noqa: ARG002 - each shard has a part of them
        """See `WriterLike.pending_from`."""
        return self.pending

    def wait_pending(self, most: int, timeout: float | None) -> None:
        """See `WriterLike.wait_pending`; each shard may have an equal part of the items pending."""
        if self.pending > most:
            self._wait(lambda writer, left: writer.wait_pending(most // len(self._parts), left), timeout)

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """See `WriterLike.flush`.

        Raises:
            Disconnected: a shard was lost since the last call, and `.pending` items are not known to be stored.
        """
        self._wait(lambda writer, left: writer.flush(left, durable), timeout)
        self._raise_lost()
        self._check_replay()

    def _raise_lost(self) -> None:
        """Raises `Disconnected` if items were on their way to a lost shard since the last call of this."""
        lost = {part.shard.number: part.take_lost() for part in self._parts}
        if any(lost.values()):
            numbers = ", ".join(str(number) for number, count in lost.items() if count)
            raise Disconnected(
                f"{sum(lost.values())} items on their way to shards {numbers}, which are lost, are not known to be "
                "stored: one that comes back may have them",
                pending=sum(lost.values()),
            )

    def _wait(self, call: Callable[..., None], timeout: float | None) -> None:
        """Makes a call that waits for every shard, all within the timeout.

        Raises:
            DeadlineExceeded: those of all shards as one.
        """
        end = None if timeout is None else self._clock.monotonic() + timeout
        failures: list[DeadlineExceeded] = []
        for part in self._parts:
            left = None if end is None else max(0.0, end - self._clock.monotonic())
            try:
                part.tell(partial(call, left=left))
            except DeadlineExceeded as error:
                failures.append(error)
        if failures:
            raise DeadlineExceeded(
                "; ".join(map(str, failures)), pending=sum(error.pending for error in failures)
            )

    def close(self, timeout: float | None = None) -> None:
        """See `WriterLike.close`."""
        if self._closed:
            return
        with suppress(Closed):  # The replay is closed; each part tells whether its items were applied before.
            self._wait(lambda writer, left: writer.flush(left), timeout)
        self._closed = True
        refused: list[str] = []
        for part in self._parts:
            try:
                part.tell(lambda writer: writer.close(0.0))
            except Closed as error:
                refused.append(str(error))
        if refused:
            raise Closed("; ".join(refused))
        self._raise_lost()

    def abandon(self) -> None:
        """See `WriterLike.abandon`."""
        if not self._closed:
            self._closed = True
            self._each(lambda writer: writer.abandon())

    def _each(self, call: Callable[[WriterLike], Any]) -> None:
        for part in self._parts:
            part.tell(call)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the writer is closed")
        self._check_replay()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Writer of {self._lanes} lanes in {len(self._parts)} shards, {state}>"
