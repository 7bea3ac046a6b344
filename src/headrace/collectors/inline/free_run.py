"""Free running in this process: one thread collects, and others make it stand still between two steps."""

# Rules: collectors CF4, CF6 to CF8

from __future__ import annotations

import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, TypeAlias

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.collectors.inline.rollouts import InlineRollouts
from headrace.collectors.inline.writer_output import WriterOutput
from headrace.collectors.updates.inline import InlineWeights
from headrace.conditions import SignalSafeCondition
from headrace.envs.protocol import Environments
from headrace.error_texts import text_of
from headrace.errors import StoreFull
from headrace.waits import Wait

_log = logging.getLogger(__name__)

# Until a full replay is looked at again.
_LOOK_SECONDS = 0.05

Outcome: TypeAlias = Literal["stepped", "stands", "full", "ended"]


class FreeRun:
    """One run: its thread, and the rollout under way.

    The thread refers to the rollouts only while it takes a step, so those of a forgotten collector become garbage.

    Args:
        rollouts: with a replay.

    Attributes:
        is_asked: whether the thread is asked to stand still or to stop; read before each step.
        stops: whether it is asked to stop.
        is_paused: whether a `pause` is under way.
        has_ended: whether the thread takes no further step.
        failure: the exception that ended it; None: it runs, or was stopped.
    """

    def __init__(self, rollouts: InlineRollouts) -> None:
        self._changed = SignalSafeCondition()
        self._holders = 0
        self._stands = False
        self.is_asked = self.stops = self.is_paused = self.has_ended = False
        self.failure: BaseException | None = None
        # Steps of the rollout under way that are not in the replay yet, and those that still fit into it.
        self._unwritten = self._room = 0
        self._thread = threading.Thread(
            target=self._main,
            args=(weakref.ref(rollouts), rollouts.weights),
            daemon=True,
            name="headrace-collector",
        )
        output = rollouts.output
        assert output is not None
        output.is_running = True
        self.finalizer = weakref.finalize(rollouts, _forgotten, self, output, rollouts.loop.stepper)
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is the thread that collects."""
        return threading.current_thread() is self._thread

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _main(self, find: Callable[[], InlineRollouts | None], weights: InlineWeights) -> None:
        outcome: Outcome = "stepped"
        try:
            while outcome != "ended":
                with weights.collecting():
                    while (outcome := self._turn(find())) == "stepped":
                        pass
                if outcome == "stands":
                    self._stand()
                elif outcome == "full":
                    self._rest()
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    def _turn(self, rollouts: InlineRollouts | None) -> Outcome:
        if rollouts is None:
            return "ended"
        try:
            return self._advance(rollouts)
        except BaseException as error:
            self._fail(rollouts, error)
            return "ended"

    def _advance(self, rollouts: InlineRollouts) -> Outcome:
        """Takes a step, or returns why it takes none."""
        # Rows that change in the end are written as whole rollouts.
        whole, is_begun = rollouts.writes_whole, rollouts.is_begun
        if is_begun and not whole and rollouts.seeds is not None:
            self._flush(rollouts)
            rollouts.drop()  # The next rollout begins with the reset.
            return "stepped"
        if self.is_asked and not (is_begun and whole):
            self._flush(rollouts)
            if not self.stops:
                return "stands"
            rollouts.drop()
            return "ended"
        if not is_begun:
            return self._begin_rollout(rollouts)
        if not whole and self._unwritten == self._room and not self._make_room(rollouts):
            return "full"
        rollouts.step()
        self._unwritten += 1
        if not rollouts.turn.left:
            rollouts.complete()
            rollouts.unreturned = None
            self._unwritten = 0
        return "stepped"

    def _begin_rollout(self, rollouts: InlineRollouts) -> Outcome:
        assert rollouts.output is not None
        if rollouts.is_complete():
            with suppress(StoreFull):  # The collected rows are complete; `shutdown` tries again, and raises.
                rollouts.end_trajectories()
            return "ended"
        if not rollouts.output.room():  # A reset ends episodes, which needs room for their final rows.
            return "full"
        rollouts.begin()
        self._unwritten = self._room = 0
        return "stepped"

    def _make_room(self, rollouts: InlineRollouts) -> bool:
        """Writes all steps, and finds out how many more fit; returns whether any do."""
        assert rollouts.output is not None
        self._flush(rollouts)
        self._room = rollouts.output.room()
        return self._room > 0

    def _flush(self, rollouts: InlineRollouts) -> None:
        """Writes the steps of the rollout under way into the replay."""
        if self._unwritten:
            rollouts.flush()
            self._unwritten = self._room = 0

    def _fail(self, rollouts: InlineRollouts, error: BaseException) -> None:
        """Takes in the exception that ends the run: it is logged, and ends waits for rows that will not come."""
        rollouts.fail()
        self.failure = error
        assert rollouts.output is not None
        rollouts.output.is_running = False
        # Logged as text: a stored log record must not keep the failure's frames alive.
        _log.error("collecting has ended: %s", text_of(error))
        rollouts.output.fail(error)

    def _stand(self) -> None:
        """Stands still as long as it is held."""
        with self._changed:
            self._stands = True
            self._changed.notify_all()
            while self._holders and not self.stops:
                self._changed.wait()
            self._stands = False

    def _rest(self) -> None:
        with self._changed:
            if not self.is_asked:
                self._changed.wait(_LOOK_SECONDS)

    # ---- other threads ---------------------------------------------------------------------------------------------

    def begin_pause(self) -> bool:
        """Notes that a `pause` is under way; returns False, and does nothing, if there is one or nothing to pause."""
        with self._changed:
            if self.has_ended or self.is_paused:
                return False
            self.is_paused = True
            return True

    @contextmanager
    def hold(self, timeout: float) -> Iterator[None]:
        """Makes the thread stand still between two steps for the time of a `with` block.

        Args:
            timeout: in seconds, until it stands.

        Raises:
            DeadlineExceeded: it did not stand in time; it goes on.
        """
        with self._changed:
            self._holders += 1
            self._ask()
        try:
            self._wait(lambda: self._stands, timeout, "the collecting thread to stand still")
            yield
        finally:
            with self._changed:
                self._holders -= 1
                self._ask()

    def _ask(self) -> None:
        self.is_asked = self.stops or self._holders > 0
        self._changed.notify_all()

    def stop(self, timeout: float) -> None:
        """Makes the thread end between two steps, and waits for that.

        Raises:
            DeadlineExceeded: it did not end in time; it will.
        """
        with self._changed:
            self.stops = True
            self._ask()
        self._wait(lambda: self.has_ended, timeout, "the collecting thread to end")

    def _wait(self, there: Callable[[], bool], timeout: float, event: str) -> None:
        text = f"{event}; a step of its environment or policy takes long"
        wait = Wait(SYSTEM_CLOCK, timeout, lambda seconds: f"waited {seconds:.3g} s for {text}")
        with self._changed:
            while not (there() or self.has_ended):
                if not wait.look(self._changed):
                    wait.turn_on(self._changed)


def _forgotten(run: FreeRun, output: ReplayOutput | WriterOutput, stepper: Environments) -> None:
    """Ends the run of a collector that became garbage, or that still runs at the end of the interpreter."""
    # Rules: collectors CX9
    run.stops = True
    try:
        output.is_running = False
        output.close()
        stepper.close()
    finally:
        warnings.warn("a Collector was not shut down; use it in a with block", ResourceWarning, stacklevel=2)
