"""Free running of a collector in this process."""

# Rules: collectors CF4 to CF8

from __future__ import annotations

import logging
import warnings
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from headrace.collectors.base import CollectorBase
from headrace.collectors.batches.stored_columns import StoredColumns
from headrace.collectors.inline.free_run import FreeRun, Outcome
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.local_rows import LocalRows
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.statistics import Tally
from headrace.envs.protocol import VectorStepper
from headrace.errors import StoreFull

_log = logging.getLogger(__name__)

_STAND_SECONDS = 30.0
_STOP_SECONDS = 10.0


class FreeRunning(CollectorBase):
    """Takes the steps of a free run, and lets other threads in between them."""

    _loop: CollectingLoop
    _output: ReplayOutput | None
    _stored: StoredColumns | None
    _tally: Tally
    _seeds: list[int] | None
    _must_reset: bool
    _run: FreeRun | None = None
    # Of a run, as long as no call has raised it.
    _failure: BaseException | None = None
    _has_iterated = False

    # ---- the collector ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin_rollout(self) -> LocalRows:
        """Begins a rollout; returns where its rows are."""

    @abstractmethod
    def _complete(self, rows: LocalRows) -> tuple[Any, StepCounts]:
        """Writes the last steps of a rollout into the replay; returns its batch, and counts of these steps."""

    @abstractmethod
    def _end_trajectories(self) -> None:
        """Stores the final rows of the open trajectories, as no step will follow."""

    # ---- from outside ----------------------------------------------------------------------------------------------

    def start(self) -> None:  # noqa: D102 - see the base
        self._check_usable()
        output = self._output
        if output is None:
            raise RuntimeError("start: expected a collector with replay_buffer; iterate over this one")
        if self._run is not None or self._has_iterated:
            raise RuntimeError("start: the collector was started already, or is being iterated")
        output.is_running = True
        self._run = FreeRun()
        self._finalizer = weakref.finalize(self, _forgotten, self._run, output, self._loop.stepper)
        self._run.begin(self)

    @contextmanager
    def pause(self) -> Iterator[None]:  # noqa: D102 - see the base
        self._check_usable()
        run = self._run
        if run is None or run.has_ended or run.is_paused:
            raise RuntimeError("pause: expected a collector that runs freely and is not paused")
        run.is_paused = True
        try:
            with run.hold(_STAND_SECONDS):
                self._check_usable()
                yield
        finally:
            run.is_paused = False

    @contextmanager
    def _standing_still(self, *, at_rollout_end: bool = False) -> Iterator[None]:
        """Keeps a run between two steps for the time of a `with` block. Within a step of the run it does nothing."""
        run = self._run
        if run is None or run.has_ended or run.is_current_thread:
            yield
            return
        with run.hold(_STAND_SECONDS, at_rollout_end=at_rollout_end):
            yield

    def _check_iterates(self) -> None:
        """Notes that the collector is iterated.

        Raises:
            RuntimeError: it runs freely.
        """
        if self._run is not None:
            raise RuntimeError(
                "next: expected a collector that was not started; start() fills the replay by itself"
            )
        self._has_iterated = True

    def _raise_failure(self) -> None:
        """Raises the failure of a run once; afterwards the collector can be used again."""
        failure = self._failure
        if failure is not None and not (self._run is not None and self._run.is_current_thread):
            self._failure = self._run = None
            self._finalizer.detach()
            raise failure

    def _end_run(self, timeout: float | None) -> None:
        """Ends a run, with all its steps in the replay.

        Raises:
            DeadlineExceeded: a step did not end in time.
            RuntimeError: called by the policy or an environment.
        """
        run = self._run
        if run is None:
            return
        if run.is_current_thread:
            raise RuntimeError(
                "shutdown: called by the policy, an environment or a hook, in the middle of a step"
            )
        run.stop(_STOP_SECONDS if timeout is None else timeout)
        self._finalizer.detach()
        if self._output is not None:
            self._output.is_running = False

    # ---- the run ---------------------------------------------------------------------------------------------------

    def _advance(self) -> Outcome:
        """Takes a step, or returns why it takes none; see `FreeRun`."""
        run = self._run
        assert run is not None
        if run.is_asked and self._may_stand(run):
            self._flush(run)
            return "ended" if run.stops else "stands"
        if run.rows is None:
            return self._begin_free_rollout(run)
        if self._seeds is not None and self._stored is None:
            self._flush(run)
            run.rows = None  # The next rollout begins with the reset.
            return "stepped"
        if self._stored is None and run.unwritten == run.room and not self._make_room(run):
            return "full"
        self._loop.step()
        run.left -= 1
        run.unwritten += 1
        if not run.left:
            _, counts = self._complete(run.rows)
            self._must_reset = self._seeds is not None
            self._tally.add(counts, 1)
            run.rows, run.unwritten = None, 0
        return "stepped"

    def _may_stand(self, run: FreeRun) -> bool:
        """Whether the run may stand still here. Rows that `postproc` changes are written as whole rollouts."""
        return run.rows is None or (self._stored is None and (run.stops or not run.waits_for_rollout))

    def _begin_free_rollout(self, run: FreeRun) -> Outcome:
        output = self._output
        assert output is not None
        if self._tally.is_complete():
            with suppress(StoreFull):  # The collected rows are complete; `shutdown` tries again, and raises.
                self._end_trajectories()
            return "ended"
        if not output.room():  # A reset ends episodes, which needs room for their final rows.
            return "full"
        run.rows = self._begin_rollout()
        self._must_reset = True  # Until the rollout is complete.
        run.left, run.unwritten, run.room, run.written_frames = self._loop.steps, 0, 0, 0
        return "stepped"

    def _make_room(self, run: FreeRun) -> bool:
        """Writes all steps, and finds out how many more fit; returns whether any do."""
        assert self._output is not None
        self._flush(run)
        run.room = self._output.room()
        return run.room > 0

    def _flush(self, run: FreeRun) -> None:
        """Writes the steps of the rollout under way into the replay."""
        loop, rows, output = self._loop, run.rows, self._output
        if rows is None or output is None or not run.unwritten:
            return
        is_open = loop.writer.is_open
        commit, counts = loop.report()
        begin = loop.times.clock()
        steps = rows.add(commit)
        output.write(steps, is_open, {name: row.copy() for name, row in loop.row.items()})
        loop.times.note("write", begin)
        self._tally.add_seconds(loop.times.take())
        self._tally.add(counts, 0)
        run.unwritten = run.room = 0
        run.written_frames += counts.frames

    def _note_failure(self, error: BaseException) -> None:
        """Takes in the exception that ends a run: it is logged, and ends waits for rows that will not come."""
        run, output = self._run, self._output
        assert run is not None
        assert output is not None
        if run.rows is not None:
            self._tally.frames_discarded += self._loop.frames - run.written_frames
        self._must_reset = True
        self._failure = error
        output.is_running = False
        # Logged as text: a stored log record must not keep the failure's frames alive.
        _log.error("collecting has ended: %s: %s", type(error).__name__, str(error))
        output.fail(error)


def _forgotten(run: FreeRun, output: ReplayOutput, stepper: VectorStepper) -> None:
    """Ends the run of a collector that became garbage, or that still runs at the end of the interpreter."""
    # Rules: collectors CX9
    run.stops = True
    try:
        output.is_running = False
        output.close()
        stepper.close()
    finally:
        warnings.warn("a Collector was not shut down; use it in a with block", ResourceWarning, stacklevel=2)
