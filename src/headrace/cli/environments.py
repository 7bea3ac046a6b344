"""Environments by their registered name."""

from __future__ import annotations

from typing import Any

import click
import gymnasium

from headrace.cli.importing import import_module
from headrace.envs.registered import is_atari as is_atari
from headrace.envs.registered import make_registered, register_atari


def make(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """The environment of this name; called in the process that steps it.

    Raises:
        ImportError: it needs a library that is not installed.
    """
    try:
        return make_registered(env_id, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{env_id}: {error}") from error


def spec(env_id: str) -> Any:
    """Returns the registration of this name; nothing is built.

    `module:Name-v0` imports the module first, which registers the environment.

    Raises:
        click.BadParameter: nothing is.
        ImportError: it needs a library that is not installed.
    """
    register_atari(env_id)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise click.BadParameter(f"{error}", param_hint="'ENV'") from error
