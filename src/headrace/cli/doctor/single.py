"""Examination of a single environment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from headrace.cli.doctor.report import Report, shown_error
from headrace.cli.doctor.watch import Watch
from headrace.envs.adapters.old_gym import reset_hint, reset_values, step_values
from headrace.envs.random_actions import RandomActions
from headrace.errors import SpecError

_REPLAYED = 100
_SAME_LENGTH = 3
_RESET = (
    "def reset(self, *, seed=None, options=None):\n    super().reset(seed=seed)\n    return observation, {}"
)
_STEP = "return observation, reward, terminated, truncated, {}"
_RAISED = (
    "Correct that line. A collector in this process raises the error too; a worker is started again after it. An "
    "episode that cannot go on ends with truncated=True."
)
_SPACES = "Use Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple: their elements have fixed shapes."
_NO_SPACES = "Set self.observation_space and self.action_space in __init__, to spaces of gymnasium."
CLOSE = "Let close be called twice, and before any reset."


class Stopped(Exception):
    """The environment cannot be examined further."""


class SingleExamination:
    """Examines one environment, with the interface of gymnasium.

    Args:
        env: the environment.
        report: gets the findings.
        steps: number of steps to take.
        seed: of resets.
        takes_seeds: whether its `reset` takes a seed.
    """

    def __init__(self, env: Any, report: Report, *, steps: int, seed: int, takes_seeds: bool) -> None:
        self._env, self._report, self._steps, self._seed = env, report, steps, seed
        self._takes_seeds = takes_seeds
        self._lengths: list[tuple[int, bool, bool]] = []
        self._times: dict[str, list[float]] = {"step": [], "reset": []}
        self._same_at_ends: list[bool] = []
        self._varies = False

    def run(self, build: Callable[[], Any]) -> None:
        """Makes all checks; `build` makes another environment.

        Raises:
            Stopped: some could not be made; the report says why.
        """
        env, report = self._env, self._report
        try:
            self._watch = Watch(report, env.observation_space, env.action_space)
            self._actions = RandomActions(env.action_space, 1, [self._seed])
        except (SpecError, AttributeError) as error:
            report.error("spaces", f"{error}", _SPACES if isinstance(error, SpecError) else _NO_SPACES)
            raise Stopped from error
        report.ok("spaces", f"observation {env.observation_space}; action {env.action_space}")
        self._check_resets()
        self._walk()
        self._check_ends()
        self._check_seeds(build)
        self._watch.finish()

    # ---- calls of the environment ----------------------------------------------------------------------------------

    def _reset(self, env: Any, place: str, seed: int | None = None) -> Any:
        begin = time.perf_counter()
        try:
            returned = env.reset(seed=seed)
            self._times["reset"].append(time.perf_counter() - begin)
            observation, info = reset_values(returned)
        except Exception as error:
            self._stop("reset", place, error, _RESET)
        self._watch.observation(observation, place)
        self._watch.info(info, place)
        return observation

    def _step(self, env: Any, place: str) -> tuple[Any, Any, bool, bool]:
        (action,) = self._watch.columns.action_elements(self._actions.draw())
        begin = time.perf_counter()
        try:
            returned = env.step(action)
            self._times["step"].append(time.perf_counter() - begin)
            observation, reward, terminated, truncated, info = step_values(returned)
        except Exception as error:
            self._stop("step", place, error, _STEP)
        self._watch.observation(observation, place)
        self._watch.outcome(reward, terminated, truncated, place)
        self._watch.info(info, place)
        return observation, reward, bool(np.any(terminated)), bool(np.any(truncated))

    def _stop(self, check: str, place: str, error: Exception, interface: str) -> Never:
        """Reports an error of a call: of what it returned, or raised by the environment itself."""
        if isinstance(error, SpecError):
            self._report.error(check, f"{place}: {error}", interface)
        elif hint := reset_hint(error):
            # It was raised by the call itself, so no line of the environment is wrong.
            self._report.error(check, f"{place}: {type(error).__name__}: {error}{hint}", interface)
        else:
            self._report.error(check, f"{place}: {shown_error(error)}", _RAISED)
        raise Stopped from error

    # ---- checks ----------------------------------------------------------------------------------------------------

    def _check_resets(self) -> None:
        self._reset(self._env, "first reset")
        self._reset(self._env, "reset after a reset")
        if not np.any(self._step(self._env, "first step")[2:]):
            self._reset(self._env, "reset in the middle of an episode")
        self._report.ok("reset", "works twice in a row, and in the middle of an episode")

    def _walk(self) -> None:
        """Takes random steps, with a reset after each end."""
        first = self._flat(self._reset(self._env, "reset"))
        episode = step = 0
        for _ in range(self._steps):
            step += 1
            observation, _, terminated, truncated = self._step(self._env, f"step {step} of episode {episode}")
            last = self._flat(observation)
            self._varies = self._varies or _differs(last, first) is not None
            if terminated or truncated:
                self._lengths.append((step, terminated, truncated))
                episode, step = episode + 1, 0
                first = self._flat(self._reset(self._env, f"reset before episode {episode}"))
                self._same_at_ends.append(_differs(last, first) is None)
        self._report.ok("step", f"{self._steps} steps, {len(self._lengths)} episodes")

    def _flat(self, observation: Any) -> dict[str, NDArray[Any]]:
        try:
            columns = self._watch.columns.observation.flatten({"observation": observation})
        except SpecError:
            return {}
        return {name: np.array(column) for name, column in columns.items()}

    def _check_ends(self) -> None:
        report, lengths = self._report, {length for length, _, _ in self._lengths}
        flags = {(terminated, truncated) for _, terminated, truncated in self._lengths}
        if not self._lengths:
            report.note(
                "ends",
                f"no episode ended in {self._steps} steps",
                "Take more steps (--steps), or limit episodes: hr.Collector(..., max_frames_per_traj=1000)",
            )
            return
        if len(self._lengths) >= _SAME_LENGTH and len(lengths) == 1 and flags == {(True, False)}:
            report.warn(
                "ends",
                f"all {len(self._lengths)} episodes ended after exactly {lengths.pop()} steps with terminated=True; a "
                "limit on time is a truncation: learners bootstrap from the last observation there",
                "Return terminated=False, truncated=True at the limit, or leave it to gymnasium.wrappers.TimeLimit.",
            )
        if self._varies and len(self._same_at_ends) > 1 and all(self._same_at_ends):
            report.error(
                "last observation",
                "the last observation of each episode equals the first one of the next: the environment seems to reset "
                "itself in step",
                "Return the observation in which the episode ended; Headrace calls reset.",
            )
        terminated, truncated = (sum(each[k] for each in self._lengths) for k in (1, 2))
        report.ok("ends", f"{terminated} terminated, {truncated} truncated")
        report.ok("last observation", "differs from the first one of the next episode")

    def _check_seeds(self, build: Callable[[], Any]) -> None:
        if not self._takes_seeds:
            self._report.note(
                "seeds", "dm_env takes no seed at reset: give it to the callable that builds it"
            )
            close_another(self._build_another(build), self._report)
            return
        first = self._replay(self._env)
        other = self._build_another(build)
        try:
            for what, env in (("the same environment", self._env), ("another one", other)):
                for place, (one, two) in enumerate(zip(first, self._replay(env), strict=False)):
                    name = _differs(one, two)
                    if name is not None:
                        self._report.warn(
                            "seeds",
                            f"reset(seed={self._seed}) and the same actions give {what} other numbers: {name} differs "
                            f"{'at the reset' if place == 0 else f'after step {place}'}",
                            "Draw all random numbers from self.np_random, after super().reset(seed=seed).",
                        )
                        return
        finally:
            close_another(other, self._report)
        self._report.ok("seeds", f"the same seed and actions give the same {len(first) - 1} steps")

    def _build_another(self, build: Callable[[], Any]) -> Any:
        try:
            other = build()
        except Exception as error:
            self._report.error(
                "copies",
                f"the second call of the factory raises {type(error).__name__}: {error}",
                "Collectors call the factory once for each copy: build everything inside it.",
            )
            raise Stopped from error
        if other.unwrapped is self._env.unwrapped:
            self._report.error(
                "copies",
                "the factory returns the same environment at each call",
                "Build a new one inside the factory: lambda: MyEnv(), not lambda: env.",
            )
            raise Stopped
        self._report.ok("copies", "each call of the factory builds a new one")
        return other

    def _replay(self, env: Any) -> list[dict[str, NDArray[Any]]]:
        """Returns what the environment gives after a reset with the seed, until an end."""
        self._actions.seed([self._seed])
        found = [self._flat(self._reset(env, "reset with a seed", self._seed))]
        for step in range(min(self._steps, _REPLAYED)):
            observation, reward, terminated, truncated = self._step(
                env, f"step {step} after a reset with a seed"
            )
            flags = {"reward": np.asarray(reward), "terminated": np.asarray(terminated)}
            found.append({**self._flat(observation), **flags, "truncated": np.asarray(truncated)})
            if terminated or truncated:
                break
        return found

    @property
    def microseconds(self) -> dict[str, float]:
        """Mean times of a step and of a reset."""
        return {name: 1e6 * float(np.mean(times)) for name, times in self._times.items() if times}


def close_another(env: Any, report: Report) -> None:
    """Closes an environment; an error is a finding."""
    try:
        env.close()
    except Exception as error:
        report.warn("close", shown_error(error), CLOSE)


def _differs(one: dict[str, NDArray[Any]], two: dict[str, NDArray[Any]]) -> str | None:
    """Returns the name of a column that differs; None if all are equal."""
    for name, column in one.items():
        if not np.array_equal(column, two.get(name), equal_nan=column.dtype.kind == "f"):  # type: ignore[arg-type]
            return name
    return None
