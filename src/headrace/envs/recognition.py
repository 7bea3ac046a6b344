"""Recognizes environments without loading the library that they come from."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from headrace.ends import Autoreset
from headrace.envs.agents import is_multi_agent


@dataclass(frozen=True, slots=True)
class AdaptedEnv:
    """The result of `adapt`: usable wherever an environment is.

    Attributes:
        env: the environment.
        autoreset: mode of reset at the end of an episode; None if the environment declares it.
    """

    env: Any
    autoreset: Autoreset | None

    def close(self) -> None:
        """Closes the environment."""
        self.env.close()


def is_environment(value: Any) -> bool:
    """Whether this is a ready environment, and not a callable that makes one."""
    if isinstance(value, AdaptedEnv):
        return True
    kinds = (is_vector_environment, is_dm_environment, is_parallel_environment)
    return _is_a(value, "gymnasium", "Env") or any(is_kind(value) for is_kind in kinds)


def is_vector_environment(value: Any) -> bool:
    """Whether this is a ready vector environment."""
    if isinstance(value, AdaptedEnv):
        return is_vector_environment(value.env)
    return _is_a(value, "gymnasium.vector", "VectorEnv") or is_envpool(value)


def is_dm_environment(value: Any) -> bool:
    """Whether this is a ready environment of dm_env."""
    return _is_a(value, "dm_env", "Environment")


def is_parallel_environment(value: Any) -> bool:
    """Whether this is a ready environment with several agents, of PettingZoo or with its interface."""
    if isinstance(value, type) or _is_a(value, "gymnasium", "Env") or is_vector_environment(value):
        return False
    if is_dm_environment(value) or not (callable(getattr(value, "reset", None)) and hasattr(value, "step")):
        return False
    return is_multi_agent(value)


def is_envpool(value: Any) -> bool:
    """Whether this is a ready EnvPool, of any of its types."""
    return _is_a(value, "envpool.python.envpool", "EnvPoolMixin")


def _is_a(value: Any, module: str, name: str) -> bool:
    # Where the library is not loaded there is no object of its classes.
    return module in sys.modules and isinstance(value, getattr(sys.modules[module], name))
