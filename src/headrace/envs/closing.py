"""The closing of environments after an error, which does not keep the error back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

_log = logging.getLogger(__name__)

# For environments to close, before the error is told all the same.
_CLOSE_SECONDS = 1.0


class Closable(Protocol):
    """An environment, or several."""

    def close(self) -> object:
        """Releases what it holds."""


ClosesLate: TypeAlias = Callable[[BaseException], None]
"""Called in another thread with an error that was kept back for 1 s by the closing of environments; a note says so."""


def log_late(error: BaseException) -> None:
    """Logs an error that its caller gets when the environments are closed."""
    _log.warning("%s: %s. %s", type(error).__name__, error, " ".join(error.__notes__))


def close_after(error: BaseException, environments: Mapping[str, Closable], closes_late: ClosesLate) -> None:
    """Closes environments in this thread, which made them.

    Args:
        error: about to be raised. Errors of `close` become notes of it.
        environments: by the names that messages have.
        closes_late: see `ClosesLate`.
    """
    closing = ""

    def tell() -> None:
        error.add_note(f"{closing} is still closing after {_CLOSE_SECONDS:g} s")
        closes_late(error)

    timer = threading.Timer(_CLOSE_SECONDS, tell)
    timer.daemon = True
    timer.start()
    try:
        for name, environment in environments.items():
            closing = name
            try:
                environment.close()
            except Exception as failed:
                error.add_note(f"{name}: its close raised {type(failed).__name__}: {failed}")
    finally:
        timer.cancel()
