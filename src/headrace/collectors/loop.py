"""The one loop: step n copies, act, write. It runs inline and in worker processes alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.actor import Actor
from headrace.envs.protocol import NO_COPIES, Autoreset, Indices, StepResult, VectorStepper
from headrace.envs.random_actions import RandomActions
from headrace.spec import ArraySpec

Columns = Mapping[str, NDArray[Any]]
RANDOM_VERSION = -1


class Sink(Protocol):
    """Where a loop writes. The observations of the step that comes next stand in `row` already."""

    @property
    def row(self) -> Columns:
        """The observations of the step that comes next."""
        ...

    @property
    def next_row(self) -> Columns:
        """Where the observations that follow are to be written."""
        ...

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, finals: Indices, version: int
    ) -> None:
        """Write what was done at this step and what followed.

        Args:
            actions, extras: columns `[n, ...]`.
            result: what followed.
            finals: the copies whose last observation, in `result.last_observation`, is to be kept now: `next_row` holds
                (or will hold) the first one of their next episode.
            version: of the weights that acted.
        """
        ...


@dataclass
class LoopTimes:
    """Seconds spent so far in the parts of the loop."""

    env: float = 0.0
    policy: float = 0.0
    write: float = 0.0


class CollectingLoop:
    """Steps a vector of copies with a policy and records every transition once.

    Args:
        stepper: the copies.
        policy: see `Actor`; None acts at random.
        max_frames_per_traj: the transition that makes a trajectory this long is marked truncated and the copy is reset;
            None, 0 and negative numbers set no limit.
        refresh: called before each step; gives the version of the weights that act.

    Raises:
        ValueError: a limit with an environment that cannot be reset by mask.
    """

    # Rules: collectors CR5, CW4

    def __init__(
        self,
        stepper: VectorStepper,
        policy: Any,
        *,
        max_frames_per_traj: int | None,
        refresh: Callable[[], int],
    ) -> None:
        self._limit = max(0, max_frames_per_traj or 0)
        if self._limit and not stepper.resets_by_mask:
            raise ValueError(
                "max_frames_per_traj: this vector environment resets itself and cannot be reset by mask; give single "
                "environments, or one with autoreset disabled"
            )
        self.stepper = stepper
        self.times = LoopTimes()
        self._random = RandomActions(stepper.action_space, stepper.num_envs)
        self._actor = (
            None
            if policy is None
            else Actor(policy, stepper.observation_signature, stepper.action_signature, stepper.num_envs)
        )
        self._lengths = np.zeros(stepper.num_envs, np.int64)
        self._refresh = refresh
        self._first: tuple[Columns, Columns, int] | None = None

    def reset(self, row: Columns, seeds: Sequence[int] | None = None) -> None:
        """Reset all copies; their first observations go into `row`."""
        if seeds is not None:
            self._random.seed(seeds)
        self._first = None
        if self._actor is not None:
            self._actor.reset()
        self.stepper.reset(row, seeds=seeds)
        self._lengths[:] = 0

    def probe(self, row: Columns) -> Mapping[str, ArraySpec]:
        """The further columns of the policy. It is called for the first step, and what it gives is used there."""
        if self._actor is None:
            return {}
        self._first = self._ask(self._actor, row, self._refresh())
        return self._actor.extras

    def step(self, sink: Sink, *, at_random: bool) -> None:
        """One step of all copies."""
        stepper, times, clock = self.stepper, self.times, time.perf_counter
        next_row = sink.next_row
        begin = clock()
        actions, extras, version = self._act(sink.row, at_random)
        acted = clock()
        result = stepper.step(actions, next_row)
        stepped = clock()
        finals = resets = NO_COPIES
        if self._limit or result.ended.size:
            finals, resets = self._sort_ends(result, next_row)
        sink.record(actions, extras, result, finals, version)
        if self._actor is not None and self._actor.is_recurrent:
            self._actor.follow(extras, np.union1d(finals, result.reset_steps))
        written = clock()
        if resets.size:
            stepper.reset(next_row, copies=resets)
            stepped += clock() - written
        times.policy += acted - begin
        times.env += stepped - acted
        times.write += written - stepped

    def _act(self, row: Columns, at_random: bool) -> tuple[Columns, Columns, int]:
        if at_random or self._actor is None:
            return self._random.draw(), {}, RANDOM_VERSION
        version = self._refresh()
        if self._first is not None:
            first, self._first = self._first, None
            if first[2] == version:
                return first
        return self._ask(self._actor, row, version)

    @staticmethod
    def _ask(actor: Actor, row: Columns, version: int) -> tuple[Columns, Columns, int]:
        try:
            return (*actor(row), version)
        except Exception as error:
            error.add_note(f"raised by the policy (weights of version {version})")
            raise

    def _sort_ends(self, result: StepResult, next_row: Columns) -> tuple[Indices, Indices]:
        """The copies whose last observations are to be kept now, and those that are to be reset here.

        A copy that the limit cuts is reset here, by mask, whatever its environment does at ends of its own.
        """
        cut = self._cut_long(result) if self._limit else NO_COPIES
        ended = result.ended
        match self.stepper.autoreset:
            case Autoreset.DISABLED:
                return ended, ended
            case Autoreset.NEXT_STEP:
                return cut, cut  # At an end of its own the next step is the reset, and its row the final one.
            case Autoreset.SAME_STEP:
                if cut.size:
                    for name, column in result.last_observation.items():
                        column[cut] = next_row[name][cut]
                return ended, cut

    def _cut_long(self, result: StepResult) -> Indices:
        """Mark the trajectories that have become too long; those of them that go on in the environment."""
        lengths = self._lengths
        lengths += 1
        lengths[result.reset_steps] = 0
        cut: Indices = NO_COPIES
        long = lengths >= self._limit
        if long.any():
            cut = np.flatnonzero(long & ~(result.terminated | result.truncated))
            result.truncated |= long
            result.ended = np.flatnonzero(result.terminated | result.truncated)
        lengths[result.ended] = 0
        return cut
