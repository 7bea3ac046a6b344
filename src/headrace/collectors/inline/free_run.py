"""Free running in this process: one thread collects, and others make it stand still between two steps."""

# Rules: collectors CF4, CF6 to CF8

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, Protocol, TypeAlias

from headrace.clock import SYSTEM_CLOCK
from headrace.collectors.loop.local_rows import LocalRows
from headrace.waits import Wait

# Until a full replay is looked at again.
_LOOK_SECONDS = 0.05

Outcome: TypeAlias = Literal["stepped", "stands", "full", "ended"]


class Runner(Protocol):
    """The collector that runs freely."""

    def _advance(self) -> Outcome:
        """Takes a step, or returns why it takes none."""
        ...

    def _note_failure(self, error: BaseException) -> None:
        """Takes in the exception that ends the run."""
        ...


class FreeRun:
    """One run: its thread, and the rollout under way.

    The thread refers to the collector only while it takes a step, so a collector that nobody uses becomes garbage.

    Attributes:
        is_asked: whether the thread is asked to stand still or to stop; read before each step.
        stops: whether it is asked to stop.
        waits_for_rollout: whether it is asked to stand still at the end of a rollout.
        is_paused: whether a `pause` is under way.
        has_ended: whether the thread takes no further step.
        rows: of the rollout under way; None between two rollouts.
        left: number of steps that the rollout still takes.
        unwritten: number of its steps that are not in the replay yet.
        room: number of steps that fit into the replay since the last write.
        written_frames: real transitions of the rollout that are in the replay.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders = self._rollout_holders = 0
        self._stands = False
        self.is_asked = self.stops = self.waits_for_rollout = self.is_paused = self.has_ended = False
        self.rows: LocalRows | None = None
        self._thread: threading.Thread | None = None
        self.left = self.unwritten = self.room = self.written_frames = 0

    def begin(self, runner: Runner) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(
            target=self._main, args=(weakref.ref(runner),), daemon=True, name="headrace-collector"
        )
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller is the thread that collects."""
        return threading.current_thread() is self._thread

    # ---- the thread ------------------------------------------------------------------------------------------------

    def _main(self, runner: Callable[[], Runner | None]) -> None:
        try:
            while (outcome := self._advance(runner)) != "ended":
                if outcome == "stands":
                    self._stand()
                elif outcome == "full":
                    self._rest()
        finally:
            with self._changed:
                self.has_ended = True
                self._changed.notify_all()

    @staticmethod
    def _advance(runner: Callable[[], Runner | None]) -> Outcome:
        collector = runner()
        if collector is None:
            return "ended"
        try:
            return collector._advance()
        except BaseException as error:
            collector._note_failure(error)
            return "ended"

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

    @contextmanager
    def hold(self, timeout: float, *, at_rollout_end: bool = False) -> Iterator[None]:
        """Makes the thread stand still between two steps for the time of a `with` block.

        Args:
            timeout: in seconds, until it stands.
            at_rollout_end: whether it finishes the rollout under way.

        Raises:
            DeadlineExceeded: it did not stand in time; it goes on.
        """
        with self._changed:
            self._holders += 1
            self._rollout_holders += at_rollout_end
            self._ask()
        try:
            self._wait(lambda: self._stands, timeout, "the collecting thread to stand still")
            yield
        finally:
            with self._changed:
                self._holders -= 1
                self._rollout_holders -= at_rollout_end
                self._ask()

    def _ask(self) -> None:
        self.waits_for_rollout = self._rollout_holders > 0
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
