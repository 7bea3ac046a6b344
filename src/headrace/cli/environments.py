"""Environments by their registered name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import click
import gymnasium

from headrace.cli.importing import import_module
from headrace.datasets.minari.env_spec import env_spec_to_json
from headrace.datasets.minari.spaces import space_to_json
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


def metadata(env_id: str) -> dict[str, str]:
    """The environment's spec and spaces as Minari names and writes them; what has no such form is left out."""
    with closing(make(env_id)) as env:
        wanted: dict[str, Callable[[], str]] = {
            "env_spec": lambda: env_spec_to_json(env.spec, "env_spec"),  # type: ignore[arg-type]
            "observation_space": lambda: space_to_json(env.observation_space, "observation_space"),
            "action_space": lambda: space_to_json(env.action_space, "action_space"),
        }
        found = {}
        for name, written in wanted.items():
            with suppress(ValueError, AttributeError):
                found[name] = written()
        return found
