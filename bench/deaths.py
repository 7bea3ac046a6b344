"""Kills the worker of a collector, and waits until the learner knows, or has a rollout of the worker's successor."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

import headrace as hr
from bench.case import Case
from bench.measure import Goal, Plan, Row, Spread

_FRAMES = 100
# A wait that does not end by itself is an error of the benchmark.
_PATIENCE = 60.0


class _Process(gymnasium.Env[Any, Any]):
    """Costs nothing, and shows in which process it runs."""

    observation_space = gymnasium.spaces.Box(0, np.iinfo(np.int64).max, (1,), np.int64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self._observation = np.array([os.getpid()])

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation, 1.0, False, False, {}


def cases() -> list[Case]:
    """The cases of this topic."""
    return [
        _case("deaths/kill -9 to WorkerDied", _told),
        _case("deaths/kill -9 to a new rollout", _restarted),
    ]


def _case(name: str, seconds: Callable[[], float]) -> Case:
    return Case(name, lambda plan: _rows(name, seconds, plan))


def _rows(name: str, seconds: Callable[[], float], plan: Plan) -> Iterator[Row]:
    # Each kill is a warning, which is no news here.
    logger = logging.getLogger("headrace")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield Row(name, "s", Spread.of([seconds() for _ in range(plan.rounds)]), goal=Goal(most=2.0))
    finally:
        logger.setLevel(level)


def _told() -> float:
    """Seconds until `next` raises; it hands out the complete rollouts of the dead worker first."""
    with hr.AsyncCollector(_Process, frames_per_batch=_FRAMES, restart_workers=False) as collector:
        collector.next(timeout=_PATIENCE)
        os.kill(collector.worker_pid, signal.SIGKILL)
        killed = time.monotonic()
        try:
            while True:
                collector.next(timeout=_PATIENCE)
        except hr.WorkerDied:
            return time.monotonic() - killed


def _restarted() -> float:
    """Seconds until a rollout comes that another process has collected."""
    with hr.AsyncCollector(_Process, frames_per_batch=_FRAMES) as collector:
        collector.next(timeout=_PATIENCE)
        victim = collector.worker_pid
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        process = victim
        while process == victim:
            process = next(collector)["observation"][0, 0, 0]
        return time.monotonic() - killed
