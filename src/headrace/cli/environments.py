"""Environments by their registered name."""

from __future__ import annotations

from typing import Any

import click
import gymnasium

from headrace.cli.importing import import_module


def is_atari(env_id: str) -> bool:
    """Whether the name is one of the Arcade Learning Environment.

    >>> is_atari("ALE/Pong-v5"), is_atari("CartPole-v1")
    (True, False)
    """
    return env_id.startswith("ALE/")


def make(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """The environment of this name; called in the process that steps it.

    Raises:
        ImportError: it needs a library that is not installed.
    """
    _register(env_id)
    try:
        return gymnasium.make(env_id, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{env_id}: {error}") from error


def spec(env_id: str) -> Any:
    """What is registered under this name; nothing is built.

    `module:Name-v0` imports the module first, which registers the environment.

    Raises:
        click.BadParameter: nothing is.
        ImportError: it needs a library that is not installed.
    """
    _register(env_id)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise click.BadParameter(f"{error}", param_hint="'ENV'") from error


def _register(env_id: str) -> None:
    if not is_atari(env_id):
        return
    try:
        import ale_py
    except ImportError as error:
        raise ImportError(f'{env_id} needs ale-py: pip install "headrace[atari]"') from error
    gymnasium.register_envs(ale_py)
