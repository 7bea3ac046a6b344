"""Gymnasium environments by their registered name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import click
import gymnasium

from headrace.cli.user_modules import import_module
from headrace.datasets.minari.env_spec import env_spec_to_json
from headrace.datasets.minari.spaces import space_to_json
from headrace.envs.registered import is_atari as is_atari
from headrace.envs.registered import make_registered, register_atari


def make(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    """Builds an environment, in the process that steps it.

    Raises:
        ImportError: the environment needs a library that is not installed.
    """
    try:
        return make_registered(env_id, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ImportError(f"{env_id}: {error}") from error


def spec(env_id: str) -> Any:
    """Returns the registration of an environment, without building it.

    `module:Name-v0` imports the module first, which registers the environment.

    Raises:
        click.BadParameter: no environment has this name.
        ImportError: the environment needs a library that is not installed.
    """
    register_atari(env_id)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ImportError) as error:
        told = f"{error}"
        if callable(getattr(sys.modules.get(module), name, None)):
            told = (
                f"expected the id of a registered environment, got the callable {name} of {module}; register it, as in "
                f"gymnasium.register('My-v0', entry_point='{env_id}'), and give {module}:My-v0"
            )
        raise click.BadParameter(told, param_hint="'ENV'") from error


def metadata(env_id: str, build: Callable[[str], gymnasium.Env[Any, Any]] = make) -> dict[str, str]:
    """Returns the spec and the spaces of an environment, as Minari names and writes them.

    A space or spec that Minari has no form for is left out.
    """
    with closing(build(env_id)) as env:
        writers: dict[str, Callable[[], str]] = {
            "env_spec": lambda: env_spec_to_json(env.spec, "env_spec"),  # type: ignore[arg-type]
            "observation_space": lambda: space_to_json(env.observation_space, "observation_space"),
            "action_space": lambda: space_to_json(env.action_space, "action_space"),
        }
        found = {}
        for name, write in writers.items():
            with suppress(ValueError, AttributeError):
                found[name] = write()
        return found
