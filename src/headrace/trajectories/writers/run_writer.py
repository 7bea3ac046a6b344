"""The step writer of parts of episodes that are arrays already."""

from __future__ import annotations

from headrace.trajectories.lifecycle import MAX_PENDING, alone
from headrace.trajectories.writers.lane_recorder import WAS_INTERRUPTED
from headrace.trajectories.writers.ready_transitions import ReadyTransitions
from headrace.trajectories.writers.step_writer import StepWriter


class RunWriter(StepWriter):
    """A `StepWriter` of one lane that also takes many transitions of an episode at once.

    Args: as `StepWriter`.
    """

    @property
    def takes_runs(self) -> bool:
        """Whether `add_run` may be called: no item is decided by a pattern or a priority function.

        Items of two rules of one table would come in another order than step by step, so each rule needs its own table.
        """
        tables = {rule.table for rule in self.rules}
        return len(tables) == len(self.rules) and not self._recorder.decides_items

    @property
    def open_rows(self) -> int | None:
        """Number of rows of the open episode; None: there is none."""
        states = self._recorder.states
        return states.cached if states.all_open else None

    @alone
    def add_run(self, transitions: ReadyTransitions, begin: int, end: int) -> None:
        """Adds transitions to the open episode, which ends if the last one has a flag.

        Args:
            transitions: their `ends` are the flags.
            begin, end: the first transition, and the one after the last: of one episode.

        Raises:
            ValueError, StoreFull, DeadlineExceeded, Closed: as `add`, in the middle of the run.
        """
        writer, recorder, limits = self._open_writer(), self._recorder, self._limits
        if recorder.settle():
            raise ValueError(WAS_INTERRUPTED)
        states = recorder.states
        states.check_add()
        while begin < end:
            if states.changed:
                limits.watch()
            most, warning = limits.next_call - states.calls, ""
            if most <= 0:
                most, warning = 1, limits.check()
                states.changed = True
            pending = writer.pending
            most = min(most, max(1, (MAX_PENDING - pending) // len(self.rules)), end - begin)
            following = {name: column[begin : begin + most] for name, column in transitions.following.items()}
            recorder.take_run(transitions.run(begin, begin + most), following)
            self._finish(writer, pending, warning)
            begin += most
