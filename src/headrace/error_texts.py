"""Texts of exceptions, which a method of the user's may make."""

from __future__ import annotations


def text_of(error: BaseException) -> str:
    """Returns the type and the message of an exception.

    >>> text_of(OSError("no simulator"))
    'OSError: no simulator'
    """
    return f"{type(error).__name__}: {message_of(error)}"


def message_of(error: BaseException) -> str:
    """Returns the message of an exception; a `__str__` of the user's that raises is told, and ends nothing."""
    try:
        return str(error)
    except Exception as failure:
        return f"its text is missing, because __str__ raised {type(failure).__name__}"
