"""The environment of the DQN: its observations are vectors, or single frames with a mark where an episode begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import gymnasium
import numpy as np
from gymnasium import spaces

from headrace.cli import environments

# Pixels that the convolutions (8 by 4, 4 by 2, 3 by 1) need on each side.
_SMALLEST_SIDE = 36


@dataclass(frozen=True)
class Problem:
    """The facts about an environment that the learner needs.

    Attributes:
        env_id: its registered name.
        observation: shape of one observation; for images, of one frame.
        is_image: True if observations are frames, to be stacked.
        num_actions, first_action: actions are `first_action` to `first_action + num_actions - 1`.
        reward_threshold: the mean return at which the environment counts as solved; None if it has none.
    """

    env_id: str
    observation: tuple[int, ...]
    is_image: bool
    num_actions: int
    first_action: int
    reward_threshold: float | None


class MarkFirst(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Frames with a mark on the first of each episode: `{"frame": uint8[H, W], "first": int8}`.

    Each frame is stored once, and a view stacks frames for training. The acting policy has its own stacks; the mark
    tells it where an episode begins. A wrapper that stacks would store every frame four times.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict(
            {"frame": env.observation_space, "first": spaces.Box(0, 1, (), np.int8)}
        )
        self._first = np.int8(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode; its first frame has the mark."""
        self._first = np.int8(1)
        return super().reset(seed=seed, options=options)

    def observation(self, observation: Any) -> dict[str, Any]:
        """Returns the frame with its mark."""
        marked = {"frame": observation, "first": np.array(self._first)}
        self._first = np.int8(0)
        return marked


def make(env_id: str, **options: Any) -> gymnasium.Env[Any, Any]:
    """Builds the environment and its wrappers, in the process that steps it. `options` are of `gymnasium.make`.

    Atari games get the usual preprocessing (M. Machado et al., "Revisiting the Arcade Learning Environment", 2018):
    up to 30 idle steps at the start, every action held for 4 frames, grey 84 by 84 pixels.
    """
    if environments.is_atari(env_id):
        return MarkFirst(_preprocessed(environments.make(env_id, frameskip=1, **options)))
    env = environments.make(env_id, **options)
    space = env.observation_space
    if _is_frame(space):
        return MarkFirst(env)
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        return env
    return gymnasium.wrappers.FlattenObservation(env)


def describe(env_id: str) -> Problem:
    """Builds the environment once, and returns its facts.

    Raises:
        click.BadParameter: the environment does not exist, its actions are not Discrete, or its images are unsuitable.
    """
    registered = environments.spec(env_id)
    env = make(env_id)
    try:
        if not isinstance(env.action_space, spaces.Discrete):
            raise click.BadParameter(
                f"{env_id}: a DQN needs a Discrete action space, got {env.action_space}", param_hint="'ENV'"
            )
        space = env.observation_space
        is_image = isinstance(space, spaces.Dict)
        shown = space["frame"] if isinstance(space, spaces.Dict) else space
        if not is_image and not environments.is_atari(env_id) and _is_pixels(env.unwrapped.observation_space):
            raise click.BadParameter(
                f"{env_id}: expected vectors, or grey images uint8[H, W] of {_SMALLEST_SIDE} pixels or more a side, "
                f"got {env.unwrapped.observation_space}",
                param_hint="'ENV'",
            )
        return Problem(
            env_id,
            tuple(shown.shape or ()),
            is_image,
            int(env.action_space.n),
            int(env.action_space.start),
            registered.reward_threshold,
        )
    finally:
        env.close()


def _is_pixels(space: Any) -> bool:
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) > 1


def _is_frame(space: Any) -> bool:
    return _is_pixels(space) and len(space.shape) == 2 and min(space.shape) >= _SMALLEST_SIDE


def _preprocessed(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.wrappers.AtariPreprocessing(env)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(
            f'Atari preprocessing needs OpenCV: pip install "headrace[atari]" ({error})'
        ) from error
