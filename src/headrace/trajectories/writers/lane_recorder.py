"""Turns the steps of lanes into rows and ends of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.tables.description.rules import Rule
from headrace.trajectories.columns.step_columns import Columns, StepColumns
from headrace.trajectories.lifecycle import Counters
from headrace.trajectories.rules.step_rules import StepRule
from headrace.trajectories.writers.current_row import CurrentRow
from headrace.trajectories.writers.final_observations import read_final_observations
from headrace.trajectories.writers.item_decisions import ItemDecisions
from headrace.trajectories.writers.lane_states import LaneStates
from headrace.trajectories.writers.lane_step import LaneStep
from headrace.trajectories.writers.unused_rows import UnusedRows

if TYPE_CHECKING:
    from headrace.replay.interface import WriterLike
    from headrace.spec import Signature

_NO_LANES = np.zeros(0, np.int64)


class LaneRecorder:
    """Takes the steps of lanes and hands them on to a writer of rows.

    Args:
        signature: of the replay.
        rules: of the step writer.
        written: the same rules as the writer of rows knows them.
        lanes: the axis that every array has in front; None for none.
        mode: what the lanes do when an episode ends (`autoreset_mode`).
        counters: of the step writer; steps and episodes are counted here.

    Attributes:
        columns: of a step.
        states: of the lanes.
        with_observation: the extras that come with observations, once the first call has settled it.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Sequence[StepRule],
        written: Sequence[Rule],
        lanes: int | None,
        mode: Autoreset,
        counters: Counters,
    ) -> None:
        self._lanes = lanes
        self.columns = StepColumns(signature, lanes)
        self.states = LaneStates(lanes or 1, mode)
        self._every = np.arange(lanes or 1)
        self._unused = UnusedRows(written, lanes or 1)
        self._decisions = ItemDecisions(signature, rules, written, self.columns, lanes)
        self.with_observation: tuple[str, ...] | None = None
        self._counters = counters
        self._writer: WriterLike
        self._row: CurrentRow

    def write_to(self, writer: WriterLike) -> None:
        """Sets the writer of rows; called once, before the first step."""
        self._writer = writer
        self._row = CurrentRow(self.columns, self._lanes, writer.staged)

    # ---- beginnings ------------------------------------------------------------------------------------------------

    def open(self, observation: Any, extras: Any, mask: NDArray[np.bool_] | None) -> None:
        """Opens the episodes of some lanes with these observations; see `StepWriter.add_first`."""
        columns = self.columns
        lanes = self.states.lanes_to_open(mask)
        rows = None if mask is None else lanes
        found = columns.observation.read_columns(observation, rows)
        found |= columns.read_extras(extras, self.with_observation, rows)
        self.declare(tuple(found))
        self._row.begin(found, rows)
        self.states.start(lanes)

    def declare(self, names: tuple[str, ...]) -> None:
        """Settles which columns come with observations, also in final rows: those of the first call."""
        if self.with_observation is None:
            self._decisions.check_ends(names)
            self._writer.declare_final_columns(names)
            self.with_observation = tuple(name for name in names if name in self.columns.extras)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def read(self, scalars: tuple[Any, Any, Any], action: Any, next_observation: Any, extras: Any) -> Columns:
        """Reads a step into the current row; returns the columns with which the next row begins.

        Args:
            scalars: reward, terminated, truncated.
            action, next_observation, extras: see `StepWriter.add`.

        Raises:
            ValueError: some lane has no episode.
            SpecError: something does not fit.
        """
        columns = self.columns
        if not self.states.all_open:
            self.states.check_add()
        following = self._row.read(columns.leaves(scalars, action, next_observation))
        if extras is not None or columns.extras:
            row, kept = self._row.values, self._row.kept_names
            for name, value in columns.read_extras(extras, columns.extras).items():
                (following if name in kept else row)[name] = value
        return following

    def take(self, following: Columns, final_observation: Any) -> bool:
        """Writes the step that was read; returns whether episodes may have ended or begun.

        Raises:
            ValueError, SpecError, StoreFull: see `StepWriter.add`; nothing changed.
        """
        row = self._row.values
        is_plain = (
            self.states.all_open
            and final_observation is None
            and not self.columns.any_set(row["terminated"], row["truncated"])
        )
        if is_plain:
            self._take_transitions(row)
        else:
            self._take_ends(row, following, final_observation)
        self._row.keep(following)
        return not is_plain

    def _take_transitions(self, row: Columns) -> None:
        """Writes a step in the middle of every lane's episode."""
        states, asks = self.states, self._decisions.are_made
        if asks:
            newest = states.calls - states.begin
            step = LaneStep(newest, self.columns.with_lanes(row), self._every, _NO_LANES, {})
            self._decisions.announce(self._writer, step)
        # A writer of one lane has no axis of lanes.
        values = {name: value[0] for name, value in row.items()} if self._lanes == 1 else row
        self._writer.append_checked(values)
        if asks:
            self._unused.note_selected(self._decisions.stored(), newest)
        states.calls += 1
        self._counters.steps_written += len(self._every)

    def _take_ends(self, row: Columns, following: Columns, final_observation: Any) -> None:
        """Writes a step in which some lanes end or are reset."""
        states, columns, asks = self.states, self.columns, self._decisions.are_made
        step = columns.with_lanes(row)
        flags: NDArray[np.bool_] = step["terminated"] | step["truncated"]
        states.check_resets(flags)
        ended, idle = flags.nonzero()[0], states.resetting
        finals = self._finals(ended, columns.with_lanes(following), final_observation)
        if asks:
            newest = states.calls - states.begin
            lane_step = LaneStep(newest, step, np.flatnonzero(~idle), ended, finals)
            self._decisions.announce(self._writer, lane_step)
        self._writer.append_ends(step, idle, ended, finals)
        if asks:
            self._unused.note_selected(self._decisions.stored(), newest)
        self._counters.steps_written += len(idle) - idle.tobytes().count(1) + len(ended)
        if len(ended):
            self._counters.steps_dropped += self._unused.end(ended, states.rows(ended) + 1)
            self._counters.episodes += len(ended)
        states.stepped(ended)

    def _finals(
        self, ended: NDArray[np.int64], following: Columns, final_observation: Any
    ) -> dict[str, NDArray[Any]]:
        """Returns the columns of the final rows of these lanes that are not zero."""
        states, columns = self.states, self.columns
        if states.mode is not Autoreset.SAME_STEP:
            if final_observation is not None:
                raise ValueError(
                    f"final_observation: expected None where lanes are not reset in the same step (the mode is "
                    f"{states.mode.value!r}): next_observation is the last one"
                )
            return {name: value[ended] for name, value in following.items()} if len(ended) else {}
        if not len(ended):
            return {}
        found = read_final_observations(columns.observation, final_observation, ended)
        # Extras that came with the first observation of the next episode belong to it (trajectories V7).
        return found | {
            name: columns.zeros(name, len(ended)) for name in self._row.kept_names if name not in found
        }

    # ---- ends ------------------------------------------------------------------------------------------------------

    def cut(self, lanes: NDArray[np.int64]) -> int:
        """Ends the episodes of these lanes here, as cut, and their streams; returns how many rows are in no item."""
        states, writer = self.states, self._writer
        unfinished = self._unfinished(lanes)
        if len(unfinished):
            kept = self.columns.with_lanes(self._row.kept)
            finals = {name: value[unfinished] for name, value in kept.items()}
            newest = states.calls - states.begin - 1
            if self._decisions.are_made:
                self._decisions.announce(writer, LaneStep(newest, {}, _NO_LANES, unfinished, finals))
            writer.end_lanes(unfinished, finals)
            self._unused.note_selected(self._decisions.stored(), newest)
            self._counters.steps_written += len(unfinished)
        dropped = self._unused.end(unfinished, states.rows(unfinished))
        return self._close(lanes, unfinished, dropped)

    def drop(self, lanes: NDArray[np.int64]) -> int:
        """Ends the episodes of these lanes and drops what no item needs; returns how many rows are in no item."""
        unfinished = self._unfinished(lanes)
        if len(unfinished):
            self._writer.drop_open_lanes(unfinished)
        dropped = self._unused.abandon(unfinished, self.states.rows(unfinished))
        return self._close(lanes, unfinished, dropped)

    def _unfinished(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the lanes whose episode has rows."""
        opened = lanes[self.states.open[lanes]]
        return opened[self.states.rows(opened) > 0]

    def _close(self, lanes: NDArray[np.int64], unfinished: NDArray[np.int64], dropped: int) -> int:
        self._writer.end_streams(lanes)
        self._decisions.forget(lanes)
        dropped += self._unused.end_streams(lanes)
        self._counters.steps_dropped += dropped
        self._counters.episodes += len(unfinished)
        self.states.close(lanes)
        return dropped
