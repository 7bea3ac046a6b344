"""Times of the parts of a collecting loop."""

# Rules: collectors CT

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

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
    """Adds up the seconds of a loop, from one report to the next.

    Args:
        clock: returns seconds.

    Attributes:
        env, policy, write, wait: since the last `take`; see `LoopSeconds`.

    >>> moments = iter([1.0, 3.5])
    >>> times = LoopTimes(clock=lambda: next(moments))
    >>> times.note("wait", times.clock())
    >>> times.take(), times.take()
    (LoopSeconds(env=0.0, policy=0.0, write=0.0, wait=2.5), LoopSeconds(env=0.0, policy=0.0, write=0.0, wait=0.0))
    """

    __slots__ = ("clock", "env", "policy", "wait", "write")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._zero()

    def _zero(self) -> None:
        self.env = self.policy = self.write = self.wait = 0.0

    def note(self, part: Part, begin: float) -> None:
        """Adds the time from `begin` until now."""
        setattr(self, part, getattr(self, part) + self.clock() - begin)

    def take(self) -> LoopSeconds:
        """Returns the seconds since the last call."""
        seconds = LoopSeconds(self.env, self.policy, self.write, self.wait)
        self._zero()
        return seconds
