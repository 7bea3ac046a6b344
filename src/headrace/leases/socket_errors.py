"""Errors of sockets, as the users of a channel see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import AuthenticationError, Disconnected


@contextmanager
def disconnected() -> Iterator[None]:
    """Raises `Disconnected` for the errors of a socket."""
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise gone(error) from cause(error)


def gone(error: OSError) -> OSError:
    """Returns the error of a socket as `Disconnected`; those of a session of TLS stay as they are."""
    if isinstance(error, Disconnected | AuthenticationError):
        return error
    return Disconnected(f"the peer is gone: {error}")


def cause(error: OSError) -> BaseException | None:
    """Returns the cause of `gone(error)`; an error that stays as it is must not become its own."""
    return error.__cause__ if isinstance(error, Disconnected | AuthenticationError) else error
