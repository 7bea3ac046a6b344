"""Recognizes environments of the old gym interface by the values that they return, and by a `reset` without a seed."""

from __future__ import annotations

import re
from typing import Any

from headrace.errors import SpecError

_OLD = (
    "; this is the interface of gym before 0.26: return what gymnasium expects, or wrap the environment with the "
    "package shimmy"
)
_NOTHING = "; is a `return` missing?"
_WITHOUT_SEED = re.compile(r"\breset\(\) got an unexpected keyword argument '(seed|options)'")


def reset_hint(error: BaseException) -> str:
    """Returns the hint that ends the message of an error of `reset`: empty unless its signature is the old one.

    >>> reset_hint(TypeError("Maze.reset() got an unexpected keyword argument 'seed'"))[:30]
    '; this is the interface of gym'
    >>> reset_hint(OSError("no simulator"))
    ''
    """
    return _OLD if isinstance(error, TypeError) and _WITHOUT_SEED.search(str(error)) else ""


def reset_values(returned: Any) -> tuple[Any, Any]:
    """Returns the observation and the info from the result of `reset`.

    Raises:
        SpecError: the result is not this pair, for example the observation alone.
    """
    if isinstance(returned, tuple | list) and len(returned) == 2:
        observation, info = returned
        return observation, info
    hint = _NOTHING if returned is None else _OLD
    raise SpecError(f"reset: expected the pair (observation, info), got {_described(returned)}{hint}")


def step_values(returned: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Returns the observation, the reward, the two flags and the info from the result of `step`.

    Raises:
        SpecError: the result is not these five values, for example the four of the old interface.
    """
    count = len(returned) if isinstance(returned, tuple | list) else 0
    if count == 5:
        observation, reward, terminated, truncated, info = returned
        return observation, reward, terminated, truncated, info
    hint = _NOTHING if returned is None else _OLD if count == 4 else ""
    raise SpecError(
        "step: expected the five values (observation, reward, terminated, truncated, info), got "
        f"{_described(returned)}{hint}"
    )


def _described(returned: Any) -> str:
    if not isinstance(returned, tuple | list):
        return type(returned).__name__
    kinds = ", ".join(type(value).__name__ for value in returned)
    return f"{len(returned)} values ({kinds})"
