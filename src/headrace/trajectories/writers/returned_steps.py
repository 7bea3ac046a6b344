"""Step writers that take steps as an environment returns them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.ends import Autoreset
from headrace.envs.autoreset import mode_of
from headrace.envs.recognition import (
    AdaptedEnv,
    is_dm_environment,
    is_environment,
    is_parallel_environment,
    is_vector_environment,
)
from headrace.trajectories.lifecycle import Recorder, alone
from headrace.trajectories.writers.episode_starts import find_starts
from headrace.trajectories.writers.final_observations import final_of_info
from headrace.trajectories.writers.lane_recorder import WAS_INTERRUPTED, LaneRecorder

W = TypeVar("W", bound=Recorder)


def lanes_of_env(env: Any, lanes: int | None, autoreset: Any) -> tuple[int | None, Any]:
    """Returns the lanes and the autoreset mode of a step writer, from its environment if it has one.

    Raises:
        ValueError: they are given beside an environment, or a vector environment does not declare its mode.
        TypeError: not an environment of gymnasium.
    """
    if env is None:
        return lanes, autoreset
    if lanes is not None or autoreset is not None:
        raise ValueError(
            f"lanes, autoreset: expected None beside env, which has them, got {lanes!r} and {autoreset!r}"
        )
    said = None
    if isinstance(env, AdaptedEnv):
        env, said = env.env, env.autoreset
    if is_vector_environment(env):
        return env.num_envs, mode_of(env, said)
    if not is_environment(env) or is_dm_environment(env) or is_parallel_environment(env):
        raise TypeError(
            f"env: expected an environment or vector environment of gymnasium, got {type(env).__name__}; for others "
            "give lanes and autoreset, and call add_first"
        )
    return None, None


@cache
def following(cls: type[W]) -> type[W]:
    """Returns the class of step writers `cls` with the `add` of `ReturnedSteps`."""
    return type(cls.__name__, (ReturnedSteps, cls), {"__module__": cls.__module__, "__doc__": cls.__doc__})


class ReturnedSteps(Recorder):
    """A step writer whose `add` takes the observation acted on, and finds where episodes begin."""

    # Of the step writer.
    _recorder: LaneRecorder
    _lanes: int | None
    _end: Callable[[NDArray[np.int64]], str]
    _has_warned = False

    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        info: Mapping[str, Any] | None = None,
        extras: Any = None,
    ) -> Sequence[int]:
        """Takes a step as the environment returned it. With a vector environment every leaf has its lanes in front.

        An episode begins where none is open, and where `observation` is not the `next_observation` of the call before.
        If that one's episode had no end, it ends there as cut, and the first such call warns: call `reset` before, to
        say that you reset the environment yourself.

        Args:
            observation: that the action was chosen for: what `reset` or the last `step` returned.
            action: of the agent.
            reward, terminated, truncated, next_observation: what `step` returned.
            info: what `step` returned. It is read if the environment resets itself in the same step, for the last
                observations of episodes (`info["final_obs"]`).
            extras: all extras of the signature; they belong to the action.

        Returns:
            The keys of the new items, in order; those of a call that raised DeadlineExceeded come with the next one.

        Raises:
            ValueError, SpecError, StoreFull, DeadlineExceeded, Closed: see `StepWriter.add`. After a ValueError or
                SpecError no step was taken.
        """
        self._begin_episodes(observation)
        final = None
        if self._recorder.states.mode is Autoreset.SAME_STEP:
            final = final_of_info(info, terminated, truncated)
        step = action, reward, terminated, truncated, next_observation, extras, final
        return super().add(*step)  # type: ignore[misc, no-any-return]

    @alone
    def _begin_episodes(self, observation: Any) -> None:
        """Begins the episodes of which this is the first observation."""
        writer = self._open_writer()
        if self._recorder.is_storing and self._recorder.settle():
            raise ValueError(WAS_INTERRUPTED)
        starts = find_starts(self._recorder, observation)
        if starts is None:
            return
        if len(starts.unfinished):
            self._check_replay()
            warning = self._end(starts.unfinished)
            self._note_made(writer.take_made())
            if warning:
                warnings.warn(warning, stacklevel=4)
            self._warn_of_jumps(starts.unfinished.tolist())
        self._recorder.begin(starts.columns, starts.lanes)

    def _warn_of_jumps(self, lanes: list[int]) -> None:
        if self._has_warned:
            return
        self._has_warned = True
        where = "" if self._lanes is None else f" of lanes {lanes}"
        warnings.warn(
            f"add: the observation{where} is not the next_observation of the call before, so the unfinished episode "
            "was ended there, as cut. Where you reset the environment yourself, call reset() of this writer first. "
            "Elsewhere give what the environment returned: changed observations make each step an episode",
            stacklevel=5,
        )
