"""Modes of reset at the end of an episode."""

# Rules: collectors CE4

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Any


class Autoreset(StrEnum):
    """Behaviour of a vector environment when an episode ends.

    >>> Autoreset.parse("next_step")
    <Autoreset.NEXT_STEP: 'next_step'>
    """

    DISABLED = "disabled"
    SAME_STEP = "same_step"
    NEXT_STEP = "next_step"

    @classmethod
    def parse(cls, mode: str | Enum) -> Autoreset:
        """Returns the mode for its name, or for a member of gymnasium's `AutoresetMode` or its value ("NextStep").

        Raises:
            ValueError: not an autoreset mode.
        """
        name = mode.value if isinstance(mode, Enum) else mode
        for member in cls:
            if isinstance(name, str) and name.replace("_", "").lower() == member.value.replace("_", ""):
                return member
        raise ValueError(
            f'autoreset: expected "disabled", "same_step", "next_step" or a gymnasium AutoresetMode, got {mode!r}; '
            'vector environments of gymnasium declare theirs in envs.metadata["autoreset_mode"]'
        )


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
