"""Errors of a server as data: from a fixed list of types, so that nothing received is unpickled."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.errors import (
    AuthenticationError,
    CheckpointError,
    Closed,
    DeadlineExceeded,
    Disconnected,
    HeadraceError,
    ItemNotFound,
    SpecError,
    StoreFull,
    Unsupported,
)

_TYPES: dict[str, Callable[[str], Exception]] = {
    each.__name__: each
    for each in (
        SpecError,
        DeadlineExceeded,
        Closed,
        Disconnected,
        AuthenticationError,
        ItemNotFound,
        StoreFull,
        CheckpointError,
        Unsupported,
        HeadraceError,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        RuntimeError,
        MemoryError,
        OSError,
    )
}


class Failure(msgspec.Struct):
    """An error, as it travels.

    Attributes:
        kind: the name of its type; an error of another type is a `RuntimeError`.
        text: its message.
        pending: the number of items that are not applied, for an error that tells it.

    >>> failure_of(ValueError("length: expected 1")).error
    ValueError('length: expected 1')
    """

    kind: str
    text: str
    pending: int = 0

    @property
    def error(self) -> Exception:
        """The error as the client raises it."""
        error = _TYPES.get(self.kind, RuntimeError)(self.text)
        if isinstance(error, DeadlineExceeded | Disconnected):
            error.pending = self.pending
        return error


def failure_of(error: BaseException) -> Failure:
    """Returns an error as it travels."""
    kind = type(error).__name__
    if kind not in _TYPES:
        return Failure("RuntimeError", f"{kind}: {error}")
    # The str of a KeyError is the repr of its message.
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    return Failure(kind, text, getattr(error, "pending", 0))
