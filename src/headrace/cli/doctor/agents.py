"""Examination of an environment with several agents that act at the same time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.cli.doctor.report import Report
from headrace.cli.doctor.single import Stopped
from headrace.cli.doctor.watch import Watch
from headrace.envs import VectorStepper, make_stepper, new_columns
from headrace.envs.agents import Returned, reset_agents, step_agents
from headrace.envs.random_actions import RandomActions
from headrace.envs.recognition import AdaptedEnv
from headrace.errors import SpecError

_LANES = (
    "A collector has one lane for each agent, all with the same spaces, and every agent that plays acts at each step. "
    "hr.RolloutWorker takes other environments."
)


class AgentsExamination:
    """Examines one environment with several agents.

    Args:
        env: the environment.
        report: gets the findings.
        steps: number of steps to take.
        seed: of the resets.
    """

    def __init__(self, env: Any, report: Report, *, steps: int, seed: int) -> None:
        self._seconds: list[float] = []
        bare = env.env if isinstance(env, AdaptedEnv) else env
        self._env = _Watched(bare, self._see, self._seconds)
        self._report, self._steps, self._seed = report, steps, seed
        self._watches: dict[Any, Watch] = {}

    def run(self) -> None:
        """Makes all checks.

        Raises:
            Stopped: some could not be made; the report says why.
        """
        report = self._report
        try:
            stepper = make_stepper(self._env)
            assert isinstance(stepper, VectorStepper)
            self._stepper = stepper
        except (SpecError, ValueError) as error:
            report.error("agents", f"{error}", _LANES)
            raise Stopped from error
        report.ok("agents", f"{stepper.num_envs} agents, all with the same spaces")
        report.ok("spaces", f"observation {stepper.observation_space}; action {stepper.action_space}")
        first = self._walk([self._seed] * stepper.num_envs)
        second = self._walk([self._seed] * stepper.num_envs)
        self._compare_seeds(first, second)
        for watch in self._watches.values():
            watch.finish()

    def _see(self, place: str, observations: Any, infos: Any, returned: Returned | None) -> None:
        """Checks what the environment has returned."""
        for agent, observation in observations.items():
            if agent not in self._watches:
                spaces = self._stepper.observation_space, self._stepper.action_space
                self._watches[agent] = Watch(self._report, *spaces)
            watch, where = self._watches[agent], f"{place}, agent {agent!r}"
            watch.observation(observation, where)
            watch.info(infos.get(agent, {}), where)
            if returned is not None and agent in returned.rewards:
                terminated = returned.terminations.get(agent, False)
                truncated = returned.truncations.get(agent, False)
                watch.outcome(returned.rewards[agent], terminated, truncated, where)

    def _walk(self, seeds: list[int]) -> list[bytes]:
        """Takes steps as a collector does, with random actions; returns all observations and rewards."""
        stepper, report = self._stepper, self._report
        rows = new_columns(stepper.observation_signature, stepper.num_envs)
        actions = RandomActions(stepper.action_space, stepper.num_envs, list(range(stepper.num_envs)))
        found, ended = [], 0
        try:
            stepper.reset(rows, seeds=seeds)
            for _ in range(self._steps):
                found.append(b"".join(column.tobytes() for column in rows.values()))
                step = stepper.step(actions.draw(), rows)
                found.append(step.reward.tobytes())
                ended += step.ended.size
                if step.over.size:
                    stepper.reset(rows, envs=step.over)
        except Exception as error:
            report.error("step", f"{type(error).__name__}: {error}", _LANES)
            raise Stopped from error
        report.ok("step", f"{self._steps} steps, {ended} ends of agents")
        return found

    def _compare_seeds(self, first: list[bytes], second: list[bytes]) -> None:
        for number, (one, two) in enumerate(zip(first, second, strict=True)):
            if one != two:
                self._report.warn(
                    "seeds",
                    f"reset(seed={self._seed}) and the same actions give other numbers "
                    f"{'at the reset' if number == 0 else f'after {(number + 1) // 2} steps'}",
                    "Draw all random numbers from a generator that reset(seed=...) makes.",
                )
                return
        self._report.ok("seeds", f"the same seed and actions give the same {self._steps} steps")

    @property
    def microseconds(self) -> dict[str, float]:
        """Mean time of a step of all agents."""
        return {"step": 1e6 * float(np.mean(self._seconds))} if self._seconds else {}


class _Watched:
    """An environment whose returned values are looked at before a stepper takes them."""

    def __init__(self, env: Any, see: Any, seconds: list[float]) -> None:
        self._env, self._see, self._seconds = env, see, seconds
        self._count = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seed: int | None = None) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        observations, infos = reset_agents(self._env, 0, seed)
        self._see(f"reset before step {self._count}", observations, infos, None)
        return observations, infos

    def step(self, actions: Mapping[Any, Any]) -> Returned:
        begin = time.perf_counter()
        returned = step_agents(self._env, 0, actions)
        self._seconds.append(time.perf_counter() - begin)
        self._count += 1
        self._see(f"step {self._count}", returned.observations, returned.infos, returned)
        return returned
