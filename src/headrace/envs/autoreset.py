"""Mode of reset that a vector environment declares."""

from __future__ import annotations

from typing import Any

from headrace.ends import Autoreset


def mode_of(env: Any, said: Autoreset | None) -> Autoreset:
    """Returns the autoreset mode that a vector environment declares, or that the user named.

    Raises:
        ValueError: neither, or both and they differ; a declaration that is not a mode.
    """
    declared = (env.metadata or {}).get("autoreset_mode")
    if declared is not None:
        mode = _declared_mode(env, declared)
        if said is not None and said is not mode:
            raise ValueError(
                f"autoreset: expected {mode.value!r}, which the environment declares in metadata['autoreset_mode'], "
                f"got {said.value!r}; where the declaration is wrong, change it there"
            )
        return mode
    if said is None:
        raise ValueError(
            f"{env}: expected metadata['autoreset_mode'] to say what the environment does when an episode ends, got "
            "none; say it with hr.envs.adapt(env, autoreset='next_step' | 'same_step' | 'disabled')"
        )
    return said


def _declared_mode(env: Any, declared: Any) -> Autoreset:
    try:
        return Autoreset.parse(declared)
    except ValueError as error:
        raise ValueError(
            f"{env}: metadata['autoreset_mode']: expected a gymnasium AutoresetMode, got {declared!r}; correct what "
            "the environment declares"
        ) from error
