"""The autoreset mode of an environment, stated by its user."""

from __future__ import annotations

from enum import Enum
from typing import Any

from headrace.ends import Autoreset
from headrace.envs.autoreset import mode_of
from headrace.envs.recognition import AdaptedEnv, is_environment, is_vector_environment


def adapt(env: Any, *, autoreset: str | Enum | None = None) -> AdaptedEnv:
    """States the autoreset mode of a vector environment that does not declare it.

    Args:
        env: a vector environment, or a single one (which Headrace resets, so it needs no mode).
        autoreset: "disabled" (nothing), "same_step" (it returns the first observation of the next episode, the last
            one in `info["final_obs"]`), "next_step" (the next step is the reset, its action is ignored), or the member
            of gymnasium's `AutoresetMode`. None: as the environment declares.

    Raises:
        ValueError: an unknown mode; a mode for a single environment; no mode at all; or a mode that contradicts the
            environment's own declaration.
        TypeError: `env` is not an environment.

    >>> from headrace.testing.envs import counter_vector_env
    >>> env = counter_vector_env([3, 4], "next_step")
    >>> del env.metadata["autoreset_mode"]
    >>> adapt(env, autoreset="next_step").autoreset
    <Autoreset.NEXT_STEP: 'next_step'>
    """
    mode = None if autoreset is None else Autoreset.parse(autoreset)
    if isinstance(env, AdaptedEnv) or not is_environment(env):
        raise TypeError(f"env: expected a gymnasium Env or VectorEnv, got {type(env).__name__}")
    if is_vector_environment(env):
        return AdaptedEnv(env, mode_of(env, mode))
    if mode is not None:
        raise ValueError(
            f"autoreset: expected None for a single environment, which Headrace resets, got {mode.value!r}"
        )
    return AdaptedEnv(env, None)
