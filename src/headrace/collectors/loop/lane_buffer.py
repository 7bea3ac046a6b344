"""Rows of lanes of different lengths, until each lane has its row of a vector step."""

# Rules: collectors CE2, CE4, CB1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.loop.lane_column import LaneColumn
from headrace.envs.protocol import Columns, Indices
from headrace.spec import ArraySpec

if not cython.compiled:
    from headrace.kernels.kinds import Bool, GivenBytes, GivenLongs, Int

    # The result of a lane that is to come: that of a step; that of a reset which takes a row, as 1, because these are
    # given by flags; that of a reset which takes none, because a stream begins; one that is dropped, because the lane
    # is to be reset.
    STEPS, RESET_STEPS, BEGINS, DROPPED = range(4)


class LaneBuffer:
    """Takes rows of single lanes, and gives vector steps of all lanes, in their order.

    A row of a lane is complete when its action, its outcome and the observation that followed are known.

    Args:
        observed: maps the columns of an observation to their specs.
        lanes: n.
        depth: number of rows that lanes are normally ahead of the slowest one, at least 1.

    Attributes:
        heads: int64[n], the number of rows of each lane up to the one whose action is next, counted from the first
            vector step.
        states: uint8[n], the result of each lane that is to come: STEPS, RESET_STEPS, BEGINS or DROPPED.
        is_over: bool[n], lanes whose episode has ended: their next step is the reset.
        level: the number of vector steps that were taken.

    >>> buffer = LaneBuffer({"observation": ArraySpec((), "int64")}, 2, depth=1)
    >>> def complete(lanes, following):
    ...     reward, no = np.ones(len(lanes), np.float32), np.zeros(len(lanes), bool)
    ...     return buffer.complete(np.array(lanes), {"observation": np.array(following)}, reward, no, no)
    >>> complete([0, 1], [10, 20])  # They begin.
    0
    >>> buffer.act(np.arange(2), {"action": np.array([1, 2])}, version=0)
    >>> complete([1], [21]), buffer.is_ready
    (0, False)
    >>> complete([0], [11]), buffer.is_ready
    (0, True)
    >>> buffer.values["action"].tolist(), buffer.following["observation"].tolist()
    ([1, 2], [11, 21])
    """

    def __init__(self, observed: Mapping[str, ArraySpec], lanes: Int, depth: Int) -> None:
        self._lanes = lanes
        self._depth = depth
        # The slowest lane completes its row while others, which are `depth` ahead, complete one more.
        self._slots = depth + 2
        self._observed = {
            name: self._new_column(np.dtype(spec.dtype), spec.shape) for name, spec in observed.items()
        }
        self._reward = self._new_column(np.dtype(np.float32), ())
        self._terminated = self._new_column(np.dtype(np.bool_), ())
        self._truncated = self._new_column(np.dtype(np.bool_), ())
        self._policy: dict[str, LaneColumn] = {}
        self._versions = self._new_column(np.dtype(np.int64), ())
        self._is_reset = self._new_column(np.dtype(np.bool_), ())
        self.heads = np.zeros(lanes, np.int64)
        self.states = np.full(lanes, BEGINS, np.uint8)
        self.is_over = np.zeros(lanes, np.bool_)
        self.level = 0
        # Lanes whose row of the next vector step is not complete.
        self._missing = lanes
        # Whether the first row that is not taken begins a stream, so that its observation was not shown before.
        self._is_new = np.ones(lanes, np.bool_)
        self._has_new = True
        # Of the rows of a call: those of the outcomes, and those of the observations that followed.
        self._found = np.empty(lanes, np.int64)
        self._rows = self._found
        self._next_rows = np.empty(lanes, np.int64)
        self._map()

    def _map(self) -> None:
        """Opens the arrays that the loops below use."""
        self._forget_steps()
        self._head = self.heads
        self._state = self.states
        self._over = self.is_over
        self._version = self._versions.array
        self._reset = self._is_reset.array

    def _new_column(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> LaneColumn:
        return LaneColumn(np.zeros((self._slots * self._lanes, *shape), dtype))

    def _forget_steps(self) -> None:
        self._steps: list[tuple[Columns, Columns] | None] = [None] * self._slots

    def _row(self, head: Int, lane: Int) -> Int:
        """Returns the row of the columns at a place of a lane."""
        row: Int = head % self._slots * self._lanes + lane
        return row

    def _slot(self, level: int) -> slice:
        first = level % self._slots * self._lanes
        return slice(first, first + self._lanes)

    # ---- rows of lanes ---------------------------------------------------------------------------------------------

    def drop(self, lanes: Indices) -> None:
        """Forgets the rows of lanes that are in no vector step yet; their next episodes begin a stream."""
        self.heads[lanes] = self.level
        self._is_new[lanes] = True
        self._has_new = True
        self.is_over[lanes] = False
        self._missing = int(np.count_nonzero(self.heads <= self.level))

    def expect(self, lanes: Indices, state: int) -> None:
        """Notes the result of these lanes that is to come, as none of `act`."""
        self.states[lanes] = state

    def observations(self, lanes: Indices) -> Columns:
        """Returns the observations for which lanes act next, columns `[m, ...]`."""
        rows = self.heads[lanes] % self._slots * self._lanes + lanes
        return {name: column.array[rows] for name, column in self._observed.items()}

    def act(self, lanes: GivenLongs, values: Columns, version: Int) -> None:
        """Writes actions and further columns of the policy, `[m, ...]`, into the rows at the heads."""
        count: Int = lanes.shape[0]
        for place in range(count):
            lane: Int = lanes[place]
            row: Int = self._row(self._head[lane], lane)
            self._rows[place] = row
            self._version[row] = version
            self._state[lane] = self._over[lane]
        for name, given in values.items():
            if name not in self._policy:
                self._policy[name] = self._new_column(given.dtype, given.shape[1:])
                self._forget_steps()
            column: LaneColumn = self._policy[name]
            column.put(self._rows, count, given)

    def complete(
        self,
        lanes: GivenLongs,
        following: Columns,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
    ) -> Int:
        """Takes results of lanes: completes the rows at their heads, and goes on to their next rows.

        Args:
            lanes: int64[m].
            following: columns `[m, ...]`: the observations that followed.
            reward, terminated, truncated: `[m]`; not used where the step was a reset.

        Returns:
            The number of results that were dropped; their lanes are to be reset.
        """
        count: Int = lanes.shape[0]
        dropped: Int = self._find_rows(lanes)
        self._reward.put(self._rows, count, reward)
        self._terminated.put(self._rows, count, terminated)
        self._truncated.put(self._rows, count, truncated)
        column: LaneColumn
        for name in self._observed:
            column = self._observed[name]
            column.put(self._next_rows, count, following[name])
        self._advance(lanes, terminated, truncated)
        return dropped

    def _find_rows(self, lanes: GivenLongs) -> Int:
        """Finds the rows that the results of lanes go to; returns the number of those that are dropped."""
        dropped: Int = 0
        for place in range(lanes.shape[0]):
            lane: Int = lanes[place]
            head: Int = self._head[lane]
            self._rows[place] = self._next_rows[place] = -1
            if self._state[lane] == DROPPED:
                dropped += 1
            elif self._state[lane] == BEGINS:
                self._next_rows[place] = self._row(head, lane)
            else:
                self._rows[place] = self._row(head, lane)
                self._next_rows[place] = self._row(head + 1, lane)
        return dropped

    def _advance(self, lanes: GivenLongs, terminated: GivenBytes, truncated: GivenBytes) -> None:
        """Goes on to the next rows of the lanes that completed one."""
        for place in range(lanes.shape[0]):
            row: Int = self._rows[place]
            if row < 0:
                continue
            lane: Int = lanes[place]
            is_reset: Bool = self._state[lane] == RESET_STEPS
            self._reset[row] = is_reset
            if is_reset:
                self._reward.clear(row)
                self._terminated.clear(row)
                self._truncated.clear(row)
            self._over[lane] = not is_reset and (terminated[place] or truncated[place])
            if self._head[lane] == self.level:
                self._missing -= 1
            self._head[lane] += 1

    def mark_truncated(self, lanes: Indices) -> None:
        """Marks the rows that lanes completed last truncated; their episodes are over."""
        self._truncated.array[(self.heads[lanes] - 1) % self._slots * self._lanes + lanes] = True
        self.is_over[lanes] = True

    # ---- vector steps ----------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether each lane has its row of the next vector step."""
        return self._missing == 0

    def choose(self, is_busy: GivenBytes, least: Int) -> NDArray[np.int64]:
        """Returns idle lanes that are less than `depth` rows ahead: int64[m].

        Args:
            is_busy: bool[n], lanes that are not idle.
            least: the least number of lanes that must be busy then. Idle lanes that are further ahead are taken for it,
                too, beginning with the slowest, and room is made for their rows.
        """
        limit: Int = self.level + self._depth
        count: Int = 0
        busy: Int = 0
        for lane in range(self._lanes):
            if is_busy[lane]:
                busy += 1
            elif self._head[lane] < limit:
                self._rows[count] = lane
                count += 1
        chosen: NDArray[np.int64] = self._found[:count].copy()
        missing: Int = least - busy - count
        if missing <= 0:
            return chosen
        others = np.flatnonzero(~np.array(is_busy, np.bool_) & (self.heads >= limit))
        forced = others[np.argsort(self.heads[others], kind="stable")[:missing]]
        self._make_room(forced)
        return np.concatenate([chosen, forced])

    def _make_room(self, lanes: Indices) -> None:
        """Makes room for a further row of lanes that are ahead; they may be further ahead after resets of others."""
        slots = int(self.heads[lanes].max(initial=self.level)) + 2 - self.level
        if slots > self._slots:
            self._move(slots)

    def _move(self, slots: int) -> None:
        """Moves the rows to larger columns."""
        steps = self.level + np.arange(self._slots)
        source, target = steps % self._slots, steps % slots
        for columns in (self._observed, self._policy):
            for name, column in columns.items():
                columns[name] = _moved(column, self._lanes, source, target, slots)
        moved = (
            _moved(column, self._lanes, source, target, slots)
            for column in (self._reward, self._terminated, self._truncated, self._versions, self._is_reset)
        )
        self._reward, self._terminated, self._truncated, self._versions, self._is_reset = moved
        self._slots = slots
        self._map()

    @property
    def values(self) -> Columns:
        """The columns of the next vector step beside the observations, `[n, ...]`; valid until `take`."""
        return self._step()[0]

    @property
    def versions(self) -> NDArray[np.int64]:
        """int64[n], the versions of the policy that acted in the next vector step."""
        versions: NDArray[np.int64] = self._versions.array[self._slot(self.level)].copy()
        return versions

    @property
    def resets(self) -> Indices:
        """Lanes whose episode was reset by the next vector step."""
        resets: Indices = self._is_reset.array[self._slot(self.level)].nonzero()[0]
        return resets

    @property
    def following(self) -> Columns:
        """The observations after the next vector step, columns `[n, ...]`; valid until `take`."""
        return self._step()[1]

    def _step(self) -> tuple[Columns, Columns]:
        """Returns `values` and `following`. The steps take turns, so each has to be made once."""
        place = self.level % self._slots
        step = self._steps[place]
        if step is None:
            columns = {"reward": self._reward, "terminated": self._terminated, "truncated": self._truncated}
            step = self._cut(columns | self._policy, self.level), self._cut(self._observed, self.level + 1)
            self._steps[place] = step
        return step

    def _cut(self, columns: Mapping[str, LaneColumn], level: Int) -> Columns:
        """Returns the rows of a vector step."""
        slot = self._slot(level)
        return {name: column.array[slot] for name, column in columns.items()}

    def show_new(self, row: Columns) -> None:
        """Writes the observations of the next vector step into `row`, for lanes that begin a stream with it."""
        if self._has_new:
            lanes = np.flatnonzero(self._is_new)
            for name, column in self._observed.items():
                row[name][lanes] = column.array[self._slot(self.level)][lanes]
            self._is_new[:] = False
            self._has_new = False

    def take(self) -> None:
        """Goes on to the next vector step."""
        self.level += 1
        self._missing = 0
        for lane in range(self._lanes):
            if self._head[lane] <= self.level:
                self._missing += 1


def _moved(column: Any, lanes: int, source: Indices, target: Indices, slots: int) -> LaneColumn:
    """Returns a column of `slots` rows of each lane, with the rows of another one."""
    array: Any = column.array
    rows = array.reshape(-1, lanes, *array.shape[1:])
    larger = np.zeros((slots, *rows.shape[1:]), array.dtype)
    larger[target] = rows[source]
    return LaneColumn(larger.reshape(slots * lanes, *array.shape[1:]))
