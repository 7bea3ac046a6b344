"""Rows of lanes of different lengths, until each lane has its row of a vector step."""

# Rules: collectors CE2, CE4, CB1

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs.protocol import Columns, Indices
from headrace.spec import ArraySpec

_REWARD, _TERMINATED, _TRUNCATED = "reward", "terminated", "truncated"


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
        level: the number of vector steps that were taken.

    >>> buffer = LaneBuffer({"observation": ArraySpec((), "int64")}, 2, depth=1)
    >>> both = np.arange(2)
    >>> buffer.begin(both, {"observation": np.array([10, 20])})
    >>> buffer.act(both, {"action": np.array([1, 2])}, version=0)
    >>> yes, no = np.ones(1, bool), np.zeros(1, bool)
    >>> buffer.complete(both[1:], {"observation": np.array([21])}, np.ones(1, np.float32), no, no, no)
    >>> buffer.is_ready
    False
    >>> buffer.complete(both[:1], {"observation": np.array([11])}, np.zeros(1, np.float32), no, no, no)
    >>> buffer.is_ready, buffer.values["reward"].tolist(), buffer.following["observation"].tolist()
    (True, [0.0, 1.0], [11, 21])
    """

    def __init__(self, observed: Mapping[str, ArraySpec], lanes: int, depth: int) -> None:
        self._lanes = lanes
        self._depth = depth
        # The slowest lane completes its row while others, which are `depth` ahead, complete one more.
        self._slots = depth + 2
        self._observed = {
            name: self._new_column(np.dtype(spec.dtype), spec.shape) for name, spec in observed.items()
        }
        self._values: dict[str, NDArray[Any]] = {
            _REWARD: self._new_column(np.dtype(np.float32), ()),
            _TERMINATED: self._new_column(np.dtype(np.bool_), ()),
            _TRUNCATED: self._new_column(np.dtype(np.bool_), ()),
        }
        self._versions = self._new_column(np.dtype(np.int64), ())
        self._is_reset = self._new_column(np.dtype(np.bool_), ())
        self.heads = np.zeros(lanes, np.int64)
        self.level = 0
        # Whether the first row that is not taken begins a stream, so that its observation was not shown before.
        self._is_new = np.ones(lanes, np.bool_)

    def _new_column(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        return np.zeros((self._slots * self._lanes, *shape), dtype)

    def _rows(self, lanes: Indices) -> NDArray[np.int64]:
        """Returns the rows of the columns at the heads of lanes."""
        rows: NDArray[np.int64] = self.heads[lanes] % self._slots * self._lanes + lanes
        return rows

    def _slot(self, level: int) -> slice:
        first = level % self._slots * self._lanes
        return slice(first, first + self._lanes)

    # ---- rows of lanes ---------------------------------------------------------------------------------------------

    def drop(self, lanes: Indices) -> None:
        """Forgets the rows of lanes that are in no vector step yet; `begin` follows for their next episodes."""
        self.heads[lanes] = self.level
        self._is_new[lanes] = True

    def begin(self, lanes: Indices, first: Columns) -> None:
        """Begins an episode in these lanes.

        Args:
            lanes: int64[m].
            first: columns `[m, ...]`: the first observations.
        """
        self._observe(self._rows(lanes), first)

    def _observe(self, rows: NDArray[np.int64], observations: Columns) -> None:
        for name, column in self._observed.items():
            column[rows] = observations[name]

    def observations(self, lanes: Indices) -> Columns:
        """Returns the observations for which lanes act next, columns `[m, ...]`."""
        rows = self._rows(lanes)
        return {name: column[rows] for name, column in self._observed.items()}

    def act(self, lanes: Indices, values: Columns, version: int) -> None:
        """Writes actions and further columns of the policy, `[m, ...]`, into the rows at the heads."""
        rows = self._rows(lanes)
        for name, given in values.items():
            if name not in self._values:
                self._values[name] = self._new_column(given.dtype, given.shape[1:])
            self._values[name][rows] = given
        self._versions[rows] = version

    def complete(
        self,
        lanes: Indices,
        following: Columns,
        reward: NDArray[np.float32],
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        is_reset: NDArray[np.bool_],
    ) -> None:
        """Completes the rows at the heads of lanes by their outcomes, and goes on to their next rows.

        Args:
            lanes: int64[m].
            following: columns `[m, ...]`: the observations that followed.
            reward, terminated, truncated: `[m]`; not used where `is_reset`.
            is_reset: bool[m]: the step was the reset of an episode that ended before.
        """
        rows = self._rows(lanes)
        values = self._values
        values[_REWARD][rows] = reward
        values[_TERMINATED][rows] = terminated
        values[_TRUNCATED][rows] = truncated
        self._is_reset[rows] = is_reset
        if is_reset.any():
            took_none = rows[is_reset]
            for name in (_REWARD, _TERMINATED, _TRUNCATED):
                values[name][took_none] = 0
        self.heads[lanes] += 1
        self._observe((rows + self._lanes) % (self._slots * self._lanes), following)

    def mark_truncated(self, lanes: Indices) -> None:
        """Marks the rows that lanes completed last truncated."""
        self._values[_TRUNCATED][(self.heads[lanes] - 1) % self._slots * self._lanes + lanes] = True

    # ---- vector steps ----------------------------------------------------------------------------------------------

    @property
    def is_ready(self) -> bool:
        """Whether each lane has its row of the next vector step."""
        return bool(self.heads.min() > self.level)

    def is_behind(self, lanes: Indices) -> NDArray[np.bool_]:
        """bool[m], whether lanes may take a further row without being more than `depth` ahead."""
        behind: NDArray[np.bool_] = self.heads[lanes] < self.level + self._depth
        return behind

    def make_room(self, lanes: Indices) -> None:
        """Makes room for a further row of lanes that are ahead; they may be further ahead after resets of others."""
        slots = int(self.heads[lanes].max(initial=self.level)) + 2 - self.level
        if slots > self._slots:
            self._move(slots)

    def _move(self, slots: int) -> None:
        """Moves the rows to larger columns."""
        steps = self.level + np.arange(self._slots)
        source, target = steps % self._slots, steps % slots

        def moved(column: NDArray[Any]) -> NDArray[Any]:
            larger = np.zeros((slots, self._lanes, *column.shape[1:]), column.dtype)
            larger[target] = column.reshape(self._slots, self._lanes, *column.shape[1:])[source]
            return larger.reshape(slots * self._lanes, *column.shape[1:])

        self._observed = {name: moved(column) for name, column in self._observed.items()}
        self._values = {name: moved(column) for name, column in self._values.items()}
        self._versions, self._is_reset = moved(self._versions), moved(self._is_reset)
        self._slots = slots

    @property
    def values(self) -> dict[str, NDArray[Any]]:
        """The columns of the next vector step beside the observations, `[n, ...]`; valid until `take`."""
        slot = self._slot(self.level)
        return {name: column[slot] for name, column in self._values.items()}

    @property
    def versions(self) -> NDArray[np.int64]:
        """int64[n], the versions of the policy that acted in the next vector step."""
        return self._versions[self._slot(self.level)]

    @property
    def resets(self) -> Indices:
        """Lanes whose episode was reset by the next vector step."""
        return np.flatnonzero(self._is_reset[self._slot(self.level)])

    @property
    def following(self) -> Columns:
        """The observations after the next vector step, columns `[n, ...]`; valid until `take`."""
        slot = self._slot(self.level + 1)
        return {name: column[slot] for name, column in self._observed.items()}

    def show_new(self, row: Columns) -> None:
        """Writes the observations of the next vector step into `row`, for lanes that begin a stream with it."""
        if self._is_new.any():
            lanes = np.flatnonzero(self._is_new)
            for name, column in self._observed.items():
                row[name][lanes] = column[self._slot(self.level)][lanes]
            self._is_new[:] = False

    def take(self) -> None:
        """Goes on to the next vector step."""
        self.level += 1
