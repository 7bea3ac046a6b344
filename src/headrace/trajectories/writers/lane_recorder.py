"""Turns a step into rows and ends of episodes, and decides which items the writer makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.chosen import Chosen
from headrace.tables.description.rules import Rule
from headrace.trajectories.columns.step_columns import Columns, StepColumns
from headrace.trajectories.lifecycle import Counters
from headrace.trajectories.rules.pattern_rule import PatternRule
from headrace.trajectories.rules.step_rules import StepRule
from headrace.trajectories.writers.current_row import CurrentRow
from headrace.trajectories.writers.final_observations import read_final_observations
from headrace.trajectories.writers.item_priorities import ItemPriorities
from headrace.trajectories.writers.lane_states import SAME_STEP, LaneStates
from headrace.trajectories.writers.patterns import Patterns
from headrace.trajectories.writers.unused_rows import UnusedRows

if TYPE_CHECKING:
    from headrace.replay.interface import WriterLike
    from headrace.spec import Signature

_NO_LANES = np.zeros(0, np.int64)
_NOTHING_CHOSEN = Chosen({}, {})


class LaneRecorder:
    """Takes the steps of lanes and hands them on to a writer of rows.

    Args:
        signature: of the replay.
        rules: what becomes items.
        made_of: the same rules as the writer knows them.
        lanes: the axis that every array has in front; None for none.
        mode: what the lanes do when an episode ends (`autoreset_mode`).
        counters: of the writer; steps and episodes are counted here.

    Attributes:
        columns: of a step.
        states: of the lanes.
        with_observation: the extras that come with observations, once the first call has settled it.
    """

    def __init__(
        self,
        signature: Signature,
        rules: Sequence[StepRule],
        made_of: Sequence[Rule],
        lanes: int | None,
        mode: str,
        counters: Counters,
    ) -> None:
        self._lanes = lanes
        count = lanes or 1
        self.columns = StepColumns(signature, lanes)
        self.states = LaneStates(count, mode)
        self._unused = UnusedRows(made_of, count)
        functions = {number: rule.priority for number, rule in enumerate(rules) if callable(rule.priority)}
        self._priorities = ItemPriorities(signature, made_of, functions, count) if functions else None
        self._patterns = self._new_patterns(signature, rules)
        self._held: CurrentRow
        self.with_observation: tuple[str, ...] | None = None
        self._counters = counters

    def hold_in(self, staged: Mapping[str, NDArray[Any]]) -> None:
        """Keep what comes in these arrays of the writer (`WriterLike.staged`); called once, before anything comes."""
        self._held = CurrentRow(self.columns, self._lanes, staged)

    def _new_patterns(self, signature: Signature, rules: Sequence[StepRule]) -> Patterns | None:
        patterns = {number: rule for number, rule in enumerate(rules) if isinstance(rule, PatternRule)}
        if not patterns:
            return None
        columns = self.columns
        return Patterns(signature, patterns, self._lanes, (*columns.observation.names, *columns.extras))

    # ---- beginnings ------------------------------------------------------------------------------------------------

    def open(self, writer: WriterLike, observation: Any, extras: Any, mask: NDArray[np.bool_] | None) -> None:
        """Open the episodes of some lanes with these observations; see `StepWriter.add_first`."""
        states, columns = self.states, self.columns
        lanes = states.lanes_to_open(mask)
        rows = None if mask is None else lanes
        if rows is None:
            values = columns.observation.read(observation)
        else:
            values = columns.observation.read_rows(observation, len(states.open), rows)
        found = dict(zip(columns.observation.names, values, strict=True))
        found |= columns.read_extras(extras, self.with_observation, rows)
        self._settle(writer, found)
        self._held.put(found, rows)
        states.start(lanes)

    def _settle(self, writer: WriterLike, found: Columns) -> None:
        """The first call says which columns every row has, final rows too."""
        if self.with_observation is None:
            if self._patterns is not None:
                self._patterns.check_ends(found)
            writer.declare_final_columns(found)
            self.with_observation = tuple(name for name in found if name in self.columns.extras)

    # ---- steps -----------------------------------------------------------------------------------------------------

    def read(self, scalars: tuple[Any, Any, Any], action: Any, next_observation: Any, extras: Any) -> Columns:
        """Read a step into the row that is written next, and return what the row after it begins with.

        Args:
            scalars: reward, terminated, truncated.
            action, next_observation, extras: see `StepWriter.add`.

        Raises:
            ValueError: some lane has no episode.
            SpecError: something does not fit.
        """
        states, columns = self.states, self.columns
        if not states.all_open:
            states.check_add()
        following = self._held.read(columns.leaves(scalars, action, next_observation))
        if extras is not None or columns.extras:
            row, kept = self._held.row, self._held.names
            for name, value in columns.read_extras(extras, columns.extras).items():
                (following if name in kept else row)[name] = value
        return following

    def take(self, writer: WriterLike, following: Columns, final_observation: Any) -> bool:
        """Write the step that was read; returns whether episodes may have ended or begun.

        Raises:
            ValueError, SpecError, StoreFull: see `StepWriter.add`; nothing changed.
        """
        row = self._held.row
        if (
            self.states.all_open
            and self._priorities is None
            and final_observation is None
            and not self.columns.any_set(row["terminated"], row["truncated"])
        ):
            self._take_plain(writer, row)
            self._held.keep(following)
            return False
        self._take_seam(writer, row, following, final_observation)
        self._held.keep(following)
        return True

    def _take_plain(self, writer: WriterLike, row: Columns) -> None:
        """A step in the middle of every lane's episode."""
        states = self.states
        chosen = None if self._patterns is None else self._choose(writer, row, self._patterns)
        # A writer of one lane has no axis of lanes.
        writer.append_checked({name: value[0] for name, value in row.items()} if self._lanes == 1 else row)
        if chosen is not None:
            self._unused.note_selected(chosen, states.calls - states.begin)
        states.calls += 1
        self._counters.steps_written += len(states.open)

    def _take_seam(
        self, writer: WriterLike, row: Columns, following: Columns, final_observation: Any
    ) -> None:
        """A step in which some lanes end, are reset, or whose items' priorities are asked for."""
        states, columns = self.states, self.columns
        step = columns.with_lanes(row)
        flags: NDArray[np.bool_] = step["terminated"] | step["truncated"]
        states.check_resets(flags)
        ended, idle = flags.nonzero()[0], states.resetting
        finals = self._finals(ended, columns.with_lanes(following), final_observation)
        chosen = _NOTHING_CHOSEN
        if self._patterns is not None:
            index = states.calls - states.begin
            chosen = self._patterns.choose(index, step, np.flatnonzero(~idle), ended, finals)
            writer.choose_windows(chosen)
        if self._priorities is not None:
            taken = {name: np.array(value) for name, value in step.items()}
            lanes = np.flatnonzero(~idle)
            self._give_priorities(writer, self._priorities, taken, lanes, ended, finals, chosen)
        writer.append_ends(step, idle, ended, finals)
        if self._patterns is not None:
            self._unused.note_selected(chosen, index)
        self._counters.steps_written += len(idle) - int(np.count_nonzero(idle)) + len(ended)
        if len(ended):
            self._counters.steps_dropped += self._unused.end(ended, states.rows(ended) + 1)
            self._counters.episodes += len(ended)
        states.stepped(ended)
        if self._priorities is not None:
            self._priorities.took_step()

    def _choose(self, writer: WriterLike, row: Columns, patterns: Patterns) -> Chosen:
        """The items of patterns that a step makes in which no lane ends or is reset."""
        states = self.states
        step = self.columns.with_lanes({name: row[name] for name in patterns.reads})
        every = np.arange(len(states.open))
        chosen = patterns.choose(states.calls - states.begin, step, every, _NO_LANES, {})
        writer.choose_windows(chosen)
        return chosen

    def _finals(
        self, ended: NDArray[np.int64], following: Columns, final_observation: Any
    ) -> dict[str, NDArray[Any]]:
        """The values of the final rows of these lanes, besides zeros."""
        states, columns = self.states, self.columns
        if states.mode != SAME_STEP:
            if final_observation is not None:
                raise ValueError(
                    f"final_observation: expected None where lanes are not reset in the same step (the mode is "
                    f"{states.mode!r}): next_observation is the last one"
                )
            return {name: value[ended] for name, value in following.items()} if len(ended) else {}
        if not len(ended):
            return {}
        names = columns.observation.names
        last = read_final_observations(columns.observation, final_observation, len(states.open), ended)
        found: dict[str, NDArray[Any]] = dict(zip(names, last, strict=True))
        # Extras that came with the first observation of the next episode belong to it (trajectories V7).
        return found | {
            name: columns.zeros(name, len(ended)) for name in self._held.names if name not in found
        }

    def _give_priorities(
        self,
        writer: WriterLike,
        priorities: ItemPriorities,
        step: Mapping[str, NDArray[Any]],
        lanes: NDArray[np.int64],
        ended: NDArray[np.int64],
        finals: Mapping[str, NDArray[Any]],
        chosen: Chosen,
    ) -> None:
        columns = self.columns
        whole = {
            name: finals[name] if name in finals else columns.zeros(name, len(ended))
            for name in columns.specs
        }
        writer.give_priorities(priorities.of_step(step, lanes, ended, whole, chosen))

    # ---- ends ------------------------------------------------------------------------------------------------------

    def cut(self, writer: WriterLike, lanes: NDArray[np.int64]) -> int:
        """End the episodes of these lanes here, as cut, and their streams; returns how many rows are in no item."""
        states = self.states
        unfinished = self._unfinished(lanes)
        if len(unfinished):
            held = self.columns.with_lanes(self._held.kept)
            finals = {name: value[unfinished] for name, value in held.items()}
            chosen, index = _NOTHING_CHOSEN, states.calls - states.begin - 1
            if self._patterns is not None:
                chosen = self._patterns.choose(index, {}, _NO_LANES, unfinished, finals)
                writer.choose_windows(chosen)
            if self._priorities is not None:
                self._give_priorities(writer, self._priorities, {}, _NO_LANES, unfinished, finals, chosen)
            writer.end_lanes(unfinished, finals)
            self._unused.note_selected(chosen, index)
            self._counters.steps_written += len(unfinished)
        dropped = self._unused.end(unfinished, states.rows(unfinished))
        return self._close(writer, lanes, unfinished, dropped)

    def drop(self, writer: WriterLike, lanes: NDArray[np.int64]) -> int:
        """End the episodes of these lanes and drop what no item needs; returns how many rows are in no item."""
        unfinished = self._unfinished(lanes)
        if len(unfinished):
            writer.drop_open_lanes(unfinished)
        dropped = self._unused.abandon(unfinished, self.states.rows(unfinished))
        return self._close(writer, lanes, unfinished, dropped)

    def _unfinished(self, lanes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The lanes whose episode has rows."""
        states = self.states
        opened = lanes[states.open[lanes]]
        return opened[states.rows(opened) > 0]

    def _close(
        self, writer: WriterLike, lanes: NDArray[np.int64], unfinished: NDArray[np.int64], dropped: int
    ) -> int:
        writer.end_streams(lanes)
        if self._priorities is not None:
            self._priorities.forget(lanes)
        dropped += self._unused.end_streams(lanes)
        self._counters.steps_dropped += dropped
        self._counters.episodes += len(unfinished)
        self.states.close(lanes)
        return dropped
