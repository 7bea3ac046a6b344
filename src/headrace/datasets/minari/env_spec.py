"""Environment of a dataset: its gymnasium EnvSpec, as Minari stores it."""

# Rules: datasets K8

from __future__ import annotations

import dataclasses
import json
import logging
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

_logger = logging.getLogger(__name__)


def env_spec_of(value: Any, name: str) -> EnvSpec | None:
    """Returns the EnvSpec of an EnvSpec, its JSON, or the id of a registered environment; None stays None.

    Args:
        value: an EnvSpec, JSON, an id or None.
        name: of the argument, for errors.

    Raises:
        TypeError: another type.
        ValueError: the id is not registered, or the JSON does not describe a spec.
    """
    if value is None or isinstance(value, EnvSpec):
        return value
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected an EnvSpec, its JSON or an id, got {type(value).__name__}")
    if value.lstrip().startswith("{"):
        return env_spec_from_json(value, name)
    try:
        return gymnasium.spec(value)
    except gymnasium.error.Error as error:
        raise ValueError(f"{name}: no environment {value!r} is registered with gymnasium: {error}") from error


def env_spec_from_json(text: str, name: str) -> EnvSpec:
    """Returns the spec that `EnvSpec.to_json` wrote, in this gymnasium or an earlier one.

    Raises:
        ValueError: the JSON does not describe a spec.
    """
    try:
        data = json.loads(text)
        # Many datasets of Minari have specs of gymnasium 0.29, with fields that 1.0 refuses.
        fields = {field.name for field in dataclasses.fields(EnvSpec) if field.init}
        known = {key: value for key, value in data.items() if key in fields}
        return EnvSpec.from_json(json.dumps({"additional_wrappers": [], **known}))
    except (ValueError, TypeError, AttributeError, gymnasium.error.Error) as error:
        raise ValueError(f"{name}: expected the JSON of a gymnasium EnvSpec: {error}") from error


def env_spec_to_json(spec: EnvSpec, name: str) -> str:
    """Returns the JSON from which Minari's `recover_environment` makes the environment again.

    Raises:
        ValueError: JSON cannot hold a part of the spec, such as a function.
    """
    try:
        text = spec.to_json()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: the spec of {spec.id!r} cannot be written as JSON: {error}") from error
    env_spec_from_json(text, name)
    return text


def spaces_of(spec: EnvSpec) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]] | None:
    """Returns the observation space and the action space of an environment; None if it cannot be made here."""
    try:
        env = gymnasium.make(spec)
    except Exception as error:
        # A package, a display or a licence may be missing, and every library has its own error for that.
        _logger.info("%s cannot be made here (%s); its spaces are inferred from the data", spec.id, error)
        return None
    try:
        return env.observation_space, env.action_space
    finally:
        env.close()
