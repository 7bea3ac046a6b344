"""What writers, observers and collectors write to: a replay, or what has its interface."""

from __future__ import annotations

from typing import Any

_USED = ("signature", "table", "writer")


def check_replay(name: str, value: Any) -> None:
    """Refuse what has not the interface of a `Replay`.

    Args:
        name: of the argument, for the message.
        value: what was given.

    Raises:
        TypeError: something else, such as the address of a server or a table.
    """
    if isinstance(value, type) or not all(hasattr(value, each) for each in _USED):
        raise TypeError(
            f"{name}: expected a Replay, or what has its interface, got {type(value).__name__}: {value!r}; "
            "make one with hr.Replay(signature, tables)"
        )
