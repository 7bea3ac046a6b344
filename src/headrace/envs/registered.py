"""Environments by their registered id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator


def is_atari(env_id: str) -> bool:
    """Whether the id belongs to the Arcade Learning Environment.

    >>> is_atari("ALE/Pong-v5"), is_atari("CartPole-v1")
    (True, False)
    """
    return env_id.startswith("ALE/")


def register_atari(env_id: str) -> None:
    """Registers the games of the Arcade Learning Environment with gymnasium, if the id is one of them.

    Raises:
        ImportError: ale-py is not installed.
    """
    if not is_atari(env_id):
        return
    try:
        import ale_py
    except ImportError as error:
        raise ImportError(f'{env_id} needs ale-py: pip install "headrace[atari]"') from error
    gymnasium.register_envs(ale_py)


def entry_of(env_id: Any) -> tuple[Any, Mapping[str, Any]]:
    """Returns the callable that builds an environment, and the keyword arguments that its registration gives.

    Args:
        env_id: an id, or a gymnasium `EnvSpec`.

    Raises:
        ImportError: a library that the environment needs is not installed.
        gymnasium.error.Error: no such environment.
    """
    if isinstance(env_id, str):
        register_atari(env_id)
        env_id = gymnasium.spec(env_id)
    entry = env_id.entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry, env_id.kwargs


def make_registered(env_id: Any, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Builds an environment.

    Args:
        env_id: an id, or a gymnasium `EnvSpec`.
        kwargs: for `gymnasium.make`.

    Raises:
        ImportError: ale-py is not installed, and the id is one of its games.
        gymnasium.error.Error: as gymnasium says.
    """
    if isinstance(env_id, str):
        register_atari(env_id)
    return gymnasium.make(env_id, **kwargs)
