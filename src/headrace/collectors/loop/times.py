"""Times of the parts of a collecting loop."""

# Rules: collectors CT

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import cython

from headrace.collectors.profiling.recorder import TraceRecorder

if not cython.compiled:
    from headrace.kernels.kinds import Float

Part: TypeAlias = Literal["env", "policy", "write", "wait"]


class LoopSeconds(NamedTuple):
    """Seconds spent in the parts of a loop.

    Attributes:
        env: stepping and resetting environments.
        policy: calling the policy, taking over new weights included.
        write: storing steps, and completing rollouts.
        wait: standing still until the learner takes a batch, a full store has room, or a pause ends.
    """

    env: float = 0.0
    policy: float = 0.0
    write: float = 0.0
    wait: float = 0.0


class LoopTimes:
    """Adds up the seconds of a loop, from one report to the next. Compiled, since `note_step` is called at each step.

    Args:
        clock: returns seconds.

    Attributes:
        env, policy, write, wait: since the last `take`; see `LoopSeconds`.
        recorder: takes the times of each part while rollouts are recorded for a trace; None: nothing is recorded.

    >>> moments = iter([1.0, 3.5])
    >>> times = LoopTimes(clock=lambda: next(moments))
    >>> times.note("wait", times.clock())
    >>> times.take(), times.take()
    (LoopSeconds(env=0.0, policy=0.0, write=0.0, wait=2.5), LoopSeconds(env=0.0, policy=0.0, write=0.0, wait=0.0))
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.recorder: TraceRecorder | None = None
        self._zero()

    def _zero(self) -> None:
        self.env = self.policy = self.write = self.wait = 0.0

    def note_step(self, begin: Float, acted: Float, stepped: Float, written: Float, restarted: Float) -> None:
        """Adds one step of all environments.

        Args:
            begin, acted, stepped, written: times around the policy, the environments and the write.
            restarted: the end of the resets after it; equal to `written` if there were none.
        """
        self.policy += acted - begin
        self.env += stepped - acted + restarted - written
        self.write += written - stepped
        if self.recorder is not None:
            self.recorder.step(begin, acted, stepped, written, restarted)

    def note_exchange(self, begin: float, acted: float, received: float) -> None:
        """Adds a step of those environments that were ready.

        Args:
            begin, acted, received: times around the policy and the environments.
        """
        self.policy += acted - begin
        self.env += received - acted
        if self.recorder is not None:
            self.recorder.span("policy", begin, acted)
            self.recorder.span("env_step", acted, received)

    def note(self, part: Part, begin: float, event: str | None = None) -> None:
        """Adds the time from `begin` until now; a trace has it under the name of the part, or of `event`."""
        end = self.clock()
        setattr(self, part, getattr(self, part) + end - begin)
        if self.recorder is not None:
            self.recorder.span(event or part, begin, end)

    def trace(self, event: str, begin: float) -> None:
        """Records an event from `begin` until now, which is part of one that `note` adds."""
        if self.recorder is not None:
            self.recorder.span(event, begin, self.clock())

    def take(self) -> LoopSeconds:
        """Returns the seconds since the last call."""
        seconds = LoopSeconds(self.env, self.policy, self.write, self.wait)
        self._zero()
        return seconds
