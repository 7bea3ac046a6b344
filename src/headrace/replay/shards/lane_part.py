"""The lanes of a writer that belong to one shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed, Disconnected
from headrace.replay.intake.selection import Selection
from headrace.replay.intake.writer_like import WriterLike
from headrace.replay.interface import ReplayLike
from headrace.replay.shards.shard import Shard, ShardDown

Values = Mapping[str, NDArray[Any]]
T = TypeVar("T")

_NO_LANES = np.zeros(0, np.int64)


class LanePart:
    """Lanes `first`, `first + step`, ... of a writer, which a writer of one shard stores.

    While the shard is down, their rows are dropped and counted. When it is back, each lane goes on with its next
    episode: a stored episode has no hole.

    Args:
        shard: of the lanes.
        first, step: see above.
        lanes: number of lanes of the whole writer.
        open_writer: returns the shard's writer of so many lanes, ready to store.

    Attributes:
        shard, first: see above.
        count: number of its lanes.
    """

    def __init__(
        self,
        shard: Shard,
        first: int,
        step: int,
        lanes: int,
        open_writer: Callable[[ReplayLike, int], WriterLike],
    ) -> None:
        self.shard = shard
        self.first = first
        self.count = len(range(first, lanes, step))
        self._step = step
        self._has_lane_axis = lanes > 1
        self._open_writer = open_writer
        self._writer: WriterLike | None = None
        self._replay: ReplayLike | None = None
        # Lanes in an episode, and those that leave the rest of it out.
        self._open = np.zeros(self.count, np.bool_)
        self._skips = np.zeros(self.count, np.bool_)
        self._lost = 0
        self.reopen()

    # ---- the writer ------------------------------------------------------------------------------------------------

    def reopen(self) -> None:
        """Opens the writer again if its shard is back."""
        if self._writer is not None:
            return
        with suppress(ShardDown):
            self._replay = self.shard.open()
            self._writer = self.shard.use(lambda replay: self._open_writer(replay, self.count))
            self._skips = self._open.copy()

    def tell(self, call: Callable[[WriterLike], object]) -> bool:
        """Makes a call with the writer; returns False if its shard is down, or is lost during the call."""
        writer = self._writer
        if writer is None:
            return False
        try:
            call(writer)
        except (Disconnected, Closed) as error:
            self._lose(error)
            return False
        return True

    def ask(self, call: Callable[[WriterLike], T]) -> T | None:
        """Returns the result of a call with the writer; None if its shard is down, or is lost during the call."""
        found: list[T] = []
        return found[0] if self.tell(lambda writer: found.append(call(writer))) else None

    def _lose(self, error: Disconnected | Closed) -> None:
        """Notes that the writer has lost its shard.

        Raises:
            Closed: it was closed with its replay.
        """
        assert self._replay is not None
        self.shard.lose(self._replay, error)
        self._writer = None
        self._lost += getattr(error, "pending", 0)

    def take_lost(self) -> int:
        """Returns the number of items on their way when the shard was lost, since the last call of this."""
        lost, self._lost = self._lost, 0
        return lost

    # ---- steps -----------------------------------------------------------------------------------------------------

    def values_of(self, step: Values) -> Values:
        """Returns this part of a step, as the shard's writer takes it."""
        if not self._has_lane_axis:
            return step
        which: int | slice = self.first if self.count == 1 else slice(self.first, None, self._step)
        return {name: value[which] for name, value in step.items()}

    def _with_lanes(self, step: Values) -> Values:
        """Returns its part of a step with an axis of lanes."""
        if not self._has_lane_axis:
            return {name: np.asarray(value)[None] for name, value in step.items()}
        return {name: value[self.first :: self._step] for name, value in step.items()}

    def make_room(self, steps: int, ended: NDArray[np.int64] | None) -> None:
        """Makes room for a part of steps and final rows of the whole writer; see `WriterLike.make_room`."""
        own = _NO_LANES if ended is None else self.own(ended)[1]
        kept = own[~self._skips[own]]
        self.tell(lambda writer: writer.make_room(steps, kept))

    def append(self, step: Values) -> None:
        """Stores its part of a step of the whole writer."""
        self.reopen()
        if self._skips.any():
            self._append_ends(self._with_lanes(step), np.zeros(self.count, np.bool_), _NO_LANES, {})
            return
        stored = self.tell(lambda writer: writer.append_checked(self.values_of(step)))
        self._open[:] = True
        if not stored:
            self._drop(self.count)

    def append_ends(
        self, step: Values, idle: NDArray[np.bool_], ended: NDArray[np.int64], finals: Values
    ) -> None:
        """Stores its part of a step of the whole writer, with ends of episodes; see `WriterLike.append_ends`."""
        self.reopen()
        places, own = self.own(ended)
        self._append_ends(
            {name: value[self.first :: self._step] for name, value in step.items()},
            idle[self.first :: self._step],
            own,
            {name: value[places] for name, value in finals.items()},
        )

    def _append_ends(
        self, step: Values, idle: NDArray[np.bool_], ended: NDArray[np.int64], finals: Values
    ) -> None:
        skips = self._skips
        keeps = ~skips[ended]
        values = {name: value[keeps] for name, value in finals.items()}
        stored = self.tell(lambda writer: writer.append_ends(step, idle | skips, ended[keeps], values))
        dropped = ~idle if not stored else skips & ~idle
        self._drop(int(dropped.sum()))
        self._open |= ~idle
        self._close(ended)

    def end_lanes(self, lanes: NDArray[np.int64], values: Values | None) -> None:
        """Ends episodes in those of the whole writer's lanes that are its own; see `WriterLike.end_lanes`."""
        places, own = self.own(lanes)
        kept = np.flatnonzero(~self._skips[own])
        if len(kept):
            finals = None if values is None else {name: value[places[kept]] for name, value in values.items()}
            self.tell(lambda writer: writer.end_lanes(own[kept], finals))
        self._close(own)

    def drop_lanes(self, lanes: NDArray[np.int64] | None) -> None:
        """Drops open episodes; see `WriterLike.drop_open_lanes`."""
        own = np.arange(self.count) if lanes is None else self.own(lanes)[1]
        self.tell(lambda writer: writer.drop_open_lanes(own))
        self._close(own)

    def end_streams(self, lanes: NDArray[np.int64] | None) -> None:
        """Starts new streams; see `WriterLike.end_streams`."""
        own = None if lanes is None else self.own(lanes)[1]
        self.tell(lambda writer: writer.end_streams(own))

    def close_lanes(self) -> None:
        """Notes that all episodes have ended."""
        self._close(np.arange(self.count))

    def _close(self, lanes: NDArray[np.int64]) -> None:
        self._open[lanes] = self._skips[lanes] = False

    def _drop(self, rows: int) -> None:
        self.shard.rows_dropped += rows

    # ---- lanes -----------------------------------------------------------------------------------------------------

    def own(self, lanes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the places of its own lanes among those of the whole writer, and their numbers in the shard."""
        places = np.flatnonzero((lanes - self.first) % self._step == 0)
        return places, (lanes[places] - self.first) // self._step

    def open_lanes(self) -> NDArray[np.int64]:
        """Returns the numbers that its lanes in an episode have in the whole writer."""
        return self.first + self._step * np.flatnonzero(self._open)

    # ---- items -----------------------------------------------------------------------------------------------------

    def give_priorities(
        self, priorities: Mapping[int, NDArray[np.float64]], lanes: Mapping[int, NDArray[np.int64]]
    ) -> None:
        """Gives the priorities of its lanes' items; see `WriterLike.give_priorities`."""
        own_priorities, own_lanes = {}, {}
        for rule, values in priorities.items():
            places, own = self.own(lanes[rule])
            kept = ~self._skips[own]
            own_priorities[rule], own_lanes[rule] = values[places[kept]], own[kept]
        self.tell(lambda writer: writer.give_priorities(own_priorities, own_lanes))

    def select_windows(self, selection: Selection) -> None:
        """Selects windows of its lanes."""
        lanes = slice(self.first, None, self._step)
        own = Selection(
            {rule: mask[..., lanes] for rule, mask in selection.rows.items()},
            {rule: mask[..., lanes] for rule, mask in selection.finals.items()},
        )
        self.tell(lambda writer: writer.select_windows(own))
