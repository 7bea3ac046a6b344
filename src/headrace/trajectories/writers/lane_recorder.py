"""Turns the steps of lanes into rows and ends of episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.errors import SpecError, StoreFull
from headrace.replay.intake.writer_like import UNKNOWN_STEPS
from headrace.tables.description.rules import Rule
from headrace.trajectories.columns.step_columns import Columns, StepColumns
from headrace.trajectories.lifecycle import Counters
from headrace.trajectories.rules.step_rules import StepRule
from headrace.trajectories.writers.current_row import CurrentRow
from headrace.trajectories.writers.final_observations import read_final_observations
from headrace.trajectories.writers.item_decisions import ItemDecisions
from headrace.trajectories.writers.lane_states import LaneStates
from headrace.trajectories.writers.lane_step import LaneStep
from headrace.trajectories.writers.row_run import RowRun
from headrace.trajectories.writers.unused_rows import UnusedRows

if TYPE_CHECKING:
    from headrace.replay.interface import WriterLike
    from headrace.spec import Signature

_NO_LANES = np.zeros(0, np.int64)

WAS_INTERRUPTED = (
    "add: an earlier call was interrupted while the writer stored its step, so the unfinished episodes were ended "
    "there, without their last observations. Nothing was taken now, and neither step can be sent again: reset the "
    "environment, then call add_first"
)
"""The message of a call after `LaneRecorder.settle` has ended episodes."""


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
        is_storing: whether a call has begun to store something and not yet noted here that it did; `settle` ends that.
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
        self.is_storing = False
        # Number of steps that the writer of rows has stored, as noted here.
        self._steps = 0
        self._writer: WriterLike
        self._row: CurrentRow

    def write_to(self, writer: WriterLike) -> None:
        """Sets the writer of rows; called once, before the first step."""
        self._writer = writer
        self._steps = writer.steps
        self._row = CurrentRow(self.columns, self._lanes, writer.staged)

    @property
    def decides_items(self) -> bool:
        """Whether there is a pattern or a priority function, which must see each step before it is stored."""
        return self._decisions.are_made

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

    def begin(self, columns: Columns, lanes: NDArray[np.int64]) -> None:
        """Begins episodes of some lanes with the columns of an observation, wherever these lanes are."""
        columns = columns | self.columns.read_extras(None, self.with_observation)
        self.declare(tuple(columns))
        if len(lanes) == self.states.lanes:
            self._row.begin(columns, None)
        else:
            self._row.begin({name: value[lanes] for name, value in columns.items()}, lanes)
        self.states.start(lanes)

    @property
    def has_begun(self) -> bool:
        """Whether there was a first observation."""
        return self.with_observation is not None

    def kept_value(self, name: str) -> Any:
        """Returns a column of the observation with which the next row begins; there must have been a first one."""
        return self._row.values[name]

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

    def take(self, following: Columns, final_observation: Any) -> None:
        """Writes the step that was read, and begins the next row.

        Raises:
            ValueError, SpecError, StoreFull: see `StepWriter.add`; nothing changed.
        """
        row = self._row.values
        if (
            self.states.all_open
            and final_observation is None
            and not self.columns.any_set(row["terminated"], row["truncated"])
        ):
            try:
                self._take_transitions(row, following)
            except KeyboardInterrupt:
                self._complete(following)
                raise
        else:
            self._take_ends(row, following, final_observation)

    def _take_transitions(self, row: Columns, following: Columns) -> None:
        """Writes a step in the middle of every lane's episode."""
        states, asks = self.states, self._decisions.are_made
        if asks:
            newest = states.calls - states.begin
            step = LaneStep(newest, self.columns.with_lanes(row), self._every, _NO_LANES, {})
            self._decisions.announce(self._writer, step)
        # A writer of one lane has no axis of lanes.
        values = {name: value[0] for name, value in row.items()} if self._lanes == 1 else row
        counters, lanes = self._counters, states.lanes
        self.is_storing = True
        steps = self._writer.append_checked(values)
        if asks:
            self._unused.note_selected(self._decisions.stored(), newest)
        self._row.keep(following)
        # No call from here on, after which Ctrl-C could come.
        states.calls += 1
        counters.steps_written += lanes
        self._steps = steps
        self.is_storing = False

    def take_run(self, run: RowRun, following: Columns) -> None:
        """Writes transitions of the open episode of the only lane, of which the last one may end it.

        Args:
            run: the rows; the first one gets the observation that is kept from the call before.
            following: `[n, ...]`, the columns of the next observations.

        Raises:
            StoreFull: in the middle of the run; what was stored is noted.
        """
        run.begin_with(self._row.kept)
        self.will_store()
        try:
            run.store(self._writer)
        except StoreFull:
            self._note_run(run, following)
            raise
        self._note_run(run, following)

    def _note_run(self, run: RowRun, following: Columns) -> None:
        states, count, dropped = self.states, run.transitions, 0
        if count:
            self._row.keep({name: column[count - 1] for name, column in following.items()})
        if run.episodes:
            dropped = self._unused.end(self._every, states.rows(self._every) + count)
            states.calls += count - 1
            states.stepped(self._every)
        else:
            states.calls += count
        self._note(run.stored, dropped, run.episodes)

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
        written, episodes, dropped = len(idle) - idle.tobytes().count(1) + len(ended), len(ended), 0
        self.is_storing = True
        self._writer.append_ends(step, idle, ended, finals)
        if asks:
            self._unused.note_selected(self._decisions.stored(), newest)
        if episodes:
            dropped = self._unused.end(ended, states.rows(ended) + 1)
        self._row.keep(following)
        states.stepped(ended)
        self._note(written, dropped, episodes)

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
        rows = states.rows(unfinished)
        if len(unfinished):
            kept = self.columns.with_lanes(self._row.kept)
            finals = {name: value[unfinished] for name, value in kept.items()}
            newest = states.calls - states.begin - 1
            if self._decisions.are_made:
                self._decisions.announce(writer, LaneStep(newest, {}, _NO_LANES, unfinished, finals))
            steps = self._steps
            self.will_store()
            try:
                writer.end_lanes(unfinished, finals)
            except (StoreFull, SpecError):  # Nothing is stored.
                self._steps, self.is_storing = steps, False
                raise
            self._unused.note_selected(self._decisions.stored(), newest)
        dropped = self._unused.end(unfinished, rows)
        return self._close(lanes, len(unfinished), dropped, len(unfinished))

    def drop(self, lanes: NDArray[np.int64]) -> int:
        """Ends the episodes of these lanes and drops what no item needs; returns how many rows are in no item."""
        unfinished = self._unfinished(lanes)
        self.will_store()
        if len(unfinished):
            self._writer.drop_open_lanes(unfinished)
        dropped = self._unused.abandon(unfinished, self.states.rows(unfinished))
        return self._close(lanes, len(unfinished), dropped, 0)

    def _unfinished(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the lanes whose episode has rows."""
        opened = lanes[self.states.open[lanes]]
        return opened[self.states.rows(opened) > 0]

    def _close(self, lanes: NDArray[np.int64], episodes: int, dropped: int, written: int) -> int:
        self._writer.end_streams(lanes)
        self._decisions.forget(lanes)
        dropped += self._unused.end_streams(lanes)
        self.states.close(lanes)
        self._note(written, dropped, episodes)
        return dropped

    # ---- interrupted calls -----------------------------------------------------------------------------------------
    # Ctrl-C may come after any call in here. So a call says first that it stores something (`is_storing`), and last, in
    # a step without calls, that all of it is noted here.

    def will_store(self) -> None:
        """Says that a call begins to store something other than one step."""
        self._steps = UNKNOWN_STEPS
        self.is_storing = True

    def _note(self, written: int, dropped: int, episodes: int) -> None:
        """Notes that a call has stored all of its rows, and counts them."""
        counters, steps = self._counters, self._writer.steps
        # No call from here on, after which Ctrl-C could come.
        counters.steps_written += written
        counters.steps_dropped += dropped
        counters.episodes += episodes
        self._steps = steps
        self.is_storing = False

    def _complete(self, following: Columns) -> None:
        """Notes a step in the middle of every lane's episode, if an interrupted call has stored it."""
        # Of patterns and functions it is not known whether they have noted it.
        steps = self._writer.steps
        if self.is_storing and steps not in (self._steps, UNKNOWN_STEPS) and not self._decisions.are_made:
            self._row.keep(following)
            self.states.calls += 1
            self._note(self.states.lanes, 0, 0)

    def has_stored(self, calls: int) -> bool:
        """Returns whether a step is stored, by a call before which there were so many."""
        return self.states.calls != calls or (
            self.is_storing and self._writer.steps not in (self._steps, UNKNOWN_STEPS)
        )

    def settle(self) -> bool:
        """Ends all episodes if an interrupted call has stored something that is not noted here.

        The rows of the next step are not known to follow those that are stored, and the call may have stored some rows
        only. So the episodes end in front of their last observations, and no further item is made of them.

        Returns:
            Whether some episode was unfinished.
        """
        if not self.is_storing:
            return False
        if self._writer.steps == self._steps != UNKNOWN_STEPS:
            self.is_storing = False
            return False
        was_open = bool(self.states.open.any() or self.states.resetting.any())
        self._writer.drop_open_lanes()
        unfinished = self._unfinished(self._every)
        dropped = self._unused.abandon(unfinished, self.states.rows(unfinished))
        self._close(self._every, len(unfinished), dropped, 0)
        return was_open
