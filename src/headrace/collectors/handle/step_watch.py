"""Measures for how long a worker takes no step although it could."""

# Rules: collectors CX5

from __future__ import annotations

import logging
from collections.abc import Callable

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.collectors.last_step import LastStep

_log = logging.getLogger(__name__)

WARN_SECONDS = 30.0
"""Seconds without a step between two warnings."""
# Between two looks. In a longer pause this process was stopped or busy, and the worker may have waited for it.
_MOST_SECONDS = 1.0


class StepWatch:
    """Adds up the seconds in which a worker could take its next step and does not.

    Args:
        name: names the worker in warnings.
        last_step: the time of its newest step.
        clock: of the seconds.

    >>> from headrace.testing import FakeClock
    >>> clock, last_step = FakeClock(), LastStep.new()
    >>> watch = StepWatch(lambda: "worker 0", last_step, clock)
    >>> for collects in (False, True, True, True):
    ...     clock.advance(0.5)
    ...     print(watch.look(may_step=collects))
    0.0
    0.5
    1.0
    1.5
    >>> last_step.note()
    >>> watch.look(may_step=True)
    0.0
    >>> last_step.release()
    """

    def __init__(self, name: Callable[[], str], last_step: LastStep, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = name
        self._last_step = last_step
        self._clock = clock
        self._looked_at = clock.monotonic()
        self._step_at = last_step.at
        self._seconds = 0.0
        self._warnings = 0

    def look(self, *, may_step: bool) -> float:
        """Returns the seconds without a step so far; logs a warning every 30 s. Called about twice a second.

        Args:
            may_step: whether the worker is to collect and waits for nothing. Else the seconds begin anew.
        """
        now, step_at = self._clock.monotonic(), self._last_step.at
        passed, self._looked_at = min(now - self._looked_at, _MOST_SECONDS), now
        if not may_step or step_at != self._step_at:
            self._step_at = step_at
            self._seconds, self._warnings = 0.0, 0
            return 0.0
        self._seconds += passed
        if self._seconds >= (self._warnings + 1) * WARN_SECONDS:
            self._warnings += 1
            _log.warning(
                "%s has taken no step for %.0f s: its environment, its policy or a hook takes long",
                self._name(),
                self._seconds,
            )
        return self._seconds
