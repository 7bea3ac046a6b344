"""Transitions that are ready-made, as arrays, and where trajectories end in them."""

# Rules: trajectories R5

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.arrays import row_bytes
from headrace.errors import SpecError
from headrace.replay.intake.selection import Selection
from headrace.spec import Signature, as_array
from headrace.tables.description.rules import Rule
from headrace.trajectories.columns.step_columns import TreeColumns
from headrace.trajectories.writers.item_priorities import ItemPriorities
from headrace.trajectories.writers.lane_step import LaneStep
from headrace.trajectories.writers.row_run import RowRun

Columns = dict[str, NDArray[Any]]

_LANE = np.zeros(1, np.int64)
_NO_LANE = _LANE[:0]


class ReadyTransitions:
    """Checked columns of n transitions.

    Row i + 1 goes on with the trajectory of row i if row i has no flag and its next observation, as it is stored,
    equals the observation of row i + 1 bit by bit. Elsewhere, and at the last row, a trajectory ends.

    Args:
        signature: of the replay.
        step: the arguments of `TransitionWriter.extend` by the signature's names; trees of leaves `[n, ...]`.
        next_observation: like the observation.

    Raises:
        SpecError: something does not fit, with its path.

    Attributes:
        columns: `[n, ...]`, all columns of the signature.
        following: `[n, ...]`, the columns of the next observations.
        ends: bool[n], True at the last row of each trajectory.
    """

    def __init__(self, signature: Signature, step: Mapping[str, Any], next_observation: Any) -> None:
        reward = as_array(step["reward"], "reward")
        if reward.ndim != 1:
            raise SpecError(f"reward: expected one number a transition, shape [n], got {list(reward.shape)}")
        self._count = len(reward)
        self.columns = signature.validate(step, (self._count,))
        observation = TreeColumns(signature.tree["observation"], "observation", self._count)
        try:
            self.following: Columns = observation.read_columns(next_observation)
        except SpecError as error:
            raise SpecError(f"next_observation: {error}") from error
        flags: NDArray[np.bool_] = self.columns["terminated"] | self.columns["truncated"]
        self.ends = flags
        self.ends[:-1] |= ~self._continues()
        self.ends[-1:] = True

    def __len__(self) -> int:
        return self._count

    def run(self, begin: int, end: int) -> RowRun:
        """Returns the rows of some transitions, with a final row after the last one of each trajectory."""
        ends = self.ends[begin:end]
        count = int(np.count_nonzero(ends))
        if not count:
            return RowRun({name: column[begin:end] for name, column in self.columns.items()}, ends)
        places = np.arange(end - begin) + np.cumsum(ends) - ends
        final = np.zeros(end - begin + count, np.bool_)
        final[places[ends] + 1] = True
        rows = {}
        for name, column in self.columns.items():
            rows[name] = np.zeros((len(final), *column.shape[1:]), column.dtype)
            rows[name][places] = column[begin:end]
        for name, following in self.following.items():
            rows[name][final] = following[begin:end][ends]
        return RowRun(rows, final)

    def row(self, number: int) -> dict[str, Any]:
        """Returns the columns of one transition, `[...]`."""
        return {name: column[number] for name, column in self.columns.items()}

    def rows(self, number: int) -> Columns:
        """Returns the columns of one transition, `[1, ...]`."""
        return {name: column[number : number + 1] for name, column in self.columns.items()}

    def final(self, number: int) -> Columns:
        """Returns the columns of the final row after a transition, `[1, ...]`; the others are zero there."""
        return {name: column[number : number + 1] for name, column in self.following.items()}

    def priorities(
        self, rule: Rule, function: Callable[[Any], Any], signature: Signature
    ) -> list[NDArray[np.float64]]:
        """Returns the priorities of the items that each transition makes, its final row included.

        Args:
            rule: of these items, in a writer of one lane.
            function: gives the priority of an item's rows.
            signature: of the replay.

        Raises:
            ValueError: the function gave no priority; names the table.
        """
        asked = ItemPriorities(signature, [rule], {0: function}, 1)
        zeros = {name: np.zeros_like(column[:1]) for name, column in self.columns.items()}
        found = []
        for number, ends in enumerate(self.ends.tolist()):
            ended = _LANE if ends else _NO_LANE
            step = LaneStep(_LANE, self.rows(number), _LANE, ended, zeros | self.final(number))
            found.append(asked.of_step(step, Selection({}, {}))[0][0])
            asked.took_step()
        return found

    def _continues(self) -> NDArray[np.bool_]:
        """bool[n - 1]: whether a row's next observation is the next row's observation."""
        same = np.ones(max(self._count - 1, 0), np.bool_)
        for name, following in self.following.items():
            same &= (row_bytes(following[:-1]) == row_bytes(self.columns[name][1:])).all(axis=1)
        return same
