"""The one loop: step n copies, act, write. It runs inline and in worker processes alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.actor import Actor
from headrace.envs.protocol import Autoreset, StepResult, VectorStepper
from headrace.envs.random_actions import RandomActions
from headrace.spec import ArraySpec

Columns = Mapping[str, NDArray[Any]]
RANDOM_VERSION = -1


class Sink(Protocol):
    """Where a loop writes. The observations of the step that comes next stand in `row` already."""

    @property
    def row(self) -> Columns: ...
    @property
    def next_row(self) -> Columns: ...

    def record(
        self, actions: Columns, extras: Columns, result: StepResult, autoreset: Autoreset, version: int
    ) -> None: ...


@dataclass
class LoopTimes:
    """Seconds spent so far in the parts of the loop."""

    env: float = 0.0
    policy: float = 0.0


class CollectingLoop:
    """Steps a vector of copies with a policy and records every transition once.

    Args:
        stepper: the copies.
        policy: see `Actor`; None acts at random.
        max_frames_per_traj: the transition that makes a trajectory this long is marked truncated and the copy is reset;
            None sets no limit (collectors CR5).
        refresh: called before each step; gives the version of the weights that act (collectors CW4).

    Raises:
        ValueError: a limit with an environment that cannot be reset by mask.
    """

    def __init__(
        self,
        stepper: VectorStepper,
        policy: Callable[..., Any] | None,
        *,
        max_frames_per_traj: int | None,
        refresh: Callable[[], int],
    ) -> None:
        if max_frames_per_traj and not stepper.resets_by_mask:
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
        self._limit = max_frames_per_traj or 0
        self._lengths = np.zeros(stepper.num_envs, np.int64)
        self._refresh = refresh
        self._first: tuple[Columns, Columns, int] | None = None
        self._resetting: NDArray[np.bool_] = np.zeros(stepper.num_envs, np.bool_)

    def reset(self, row: Columns, seeds: Sequence[int] | None = None) -> None:
        """Reset all copies; their first observations go into `row`."""
        if seeds is not None:
            self._random.seed(seeds)
        self.stepper.reset(row, seeds=seeds)
        self._lengths[:] = 0
        self._first = None

    def probe(self, row: Columns) -> Mapping[str, ArraySpec]:
        """The further columns of the policy. It is called for the first step, and what it gives is used there."""
        if self._actor is None:
            return {}
        version = self._refresh()
        self._first = (*self._actor(row), version)
        return self._actor.extras

    def step(self, sink: Sink, *, at_random: bool) -> StepResult:
        """One step of all copies."""
        stepper = self.stepper
        row, next_row = sink.row, sink.next_row
        begin = time.perf_counter()
        actions, extras, version = self._act(row, at_random)
        acted = time.perf_counter()
        result = stepper.step(actions, next_row)
        self.times.policy += acted - begin
        self.times.env += time.perf_counter() - acted
        if self._limit:
            self._cut_long(result)
        sink.record(actions, extras, result, stepper.autoreset, version)
        if result.ended.size and stepper.autoreset is Autoreset.DISABLED:
            stepper.reset(next_row, copies=result.ended)
        return result

    def _act(self, row: Columns, at_random: bool) -> tuple[Columns, Columns, int]:
        if at_random or self._actor is None:
            self._first = None
            return self._random.draw(), {}, RANDOM_VERSION
        if self._first is not None:
            first, self._first = self._first, None
            return first
        version = self._refresh()
        return (*self._actor(row), version)

    def _cut_long(self, result: StepResult) -> None:
        self._lengths += 1
        long = self._lengths >= self._limit
        if long.any():
            result.truncated |= long
            result.ended = np.flatnonzero(result.terminated | result.truncated)
        self._lengths[result.ended] = 0
