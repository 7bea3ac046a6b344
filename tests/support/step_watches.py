"""Clocks of the watches over workers (CX5) that move when a test says so: a busy machine makes no worker hang."""

import time
from collections.abc import Callable

from headrace.clock import SystemClock
from headrace.collectors.handle.step_watch import StepWatch
from headrace.collectors.last_step import LastStep


class WatchClock(SystemClock):
    """Moves by a second with each look of its watch while it may, and stands still else."""

    def __init__(self, clocks: "WatchClocks") -> None:
        self._clocks = clocks
        self._now = 0.0
        self.looks_left = 0

    def monotonic(self) -> float:
        if self.looks_left:
            self.looks_left -= 1
            self._now += 1.0
        elif self._clocks.runs():
            self._now += 1.0
        return self._now


class WatchClocks:
    """The clocks of all watches that are made by `watch`.

    Attributes:
        runs: whether the clocks move. Called in the thread that listens to the workers.
    """

    def __init__(self) -> None:
        self.runs: Callable[[], bool] = lambda: False
        self._each: list[WatchClock] = []

    def watch(self, name: Callable[[], str], last_step: LastStep) -> StepWatch:
        """Returns a watch with a clock of its own."""
        self._each.append(WatchClock(self))
        return StepWatch(name, last_step, self._each[-1])

    def move(self, seconds: int) -> None:
        """Moves each clock by as many seconds, and returns when its watch has seen them."""
        deadline = time.monotonic() + 40
        for clock in self._each:
            clock.looks_left = seconds
        while any(clock.looks_left for clock in self._each):
            assert time.monotonic() < deadline, "the watches are not looked at"
            time.sleep(0.01)
