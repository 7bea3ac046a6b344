"""Every error that Headrace raises by name.

    HeadraceError
     +-- SpecError (ValueError)               data that does not fit its signature
     +-- DeadlineExceeded (TimeoutError)      a wait ended by its timeout
     +-- Closed                               closed by this side; no further call is accepted
     +-- Disconnected (ConnectionError)       the peer is gone
     +-- AuthenticationError (PermissionError)  the peer did not prove its identity
     +-- ItemNotFound (KeyError)              not raised yet: every call that takes keys skips those that are gone
     +-- StoreFull                            no free page for a step
     +-- CheckpointError                      a checkpoint or a store on disk that cannot be used
     +-- DatasetError (ValueError)            a dataset that cannot be read
     +-- WorkerDied                           a collecting process ended
     +-- Unsupported (NotImplementedError)    this system lacks what a call needs

Wrong arguments are the built-in ValueError, TypeError and KeyError.
"""

from __future__ import annotations


class HeadraceError(Exception):
    """Base class of the errors above."""


class SpecError(HeadraceError, ValueError):
    """Data that does not fit its signature; the message has the path, the expected and the given form."""


class DeadlineExceeded(HeadraceError, TimeoutError):
    """A wait ended by its timeout; nothing was taken.

    Attributes:
        pending: number of items not applied yet (0 where that has no meaning).
        stored: number of transitions of a call that were stored before (`TransitionWriter.extend`).
    """

    def __init__(self, message: str, *, pending: int = 0, stored: int = 0) -> None:
        super().__init__(message)
        self.pending = pending
        self.stored = stored


class Closed(HeadraceError):
    """The object was closed on this side and takes no more calls."""


class Disconnected(HeadraceError, ConnectionError):
    """The peer is gone.

    Attributes:
        pending: number of items not acknowledged.
    """

    def __init__(self, message: str, *, pending: int = 0) -> None:
        super().__init__(message)
        self.pending = pending


class AuthenticationError(HeadraceError, PermissionError):
    """The peer did not prove its identity."""


class ItemNotFound(HeadraceError, KeyError):
    """No item has this key.

    Not raised yet. `Replay.update_priorities` and `Replay.delete` skip keys of items that are gone, count them, and
    return the number of keys that were found.
    """

    def __str__(self) -> str:
        # KeyError shows repr(message), which would quote a sentence.
        return str(self.args[0]) if self.args else ""


class StoreFull(HeadraceError):
    """No page is free for a step; the message says what holds the pages. Stored data are kept.

    Attributes:
        stored: number of transitions of a call that were stored before (`TransitionWriter.extend`).
    """

    def __init__(self, message: str, *, stored: int = 0) -> None:
        super().__init__(message)
        self.stored = stored


class CheckpointError(HeadraceError):
    """A checkpoint or a store on disk is damaged, foreign, or in use."""


class DatasetError(HeadraceError, ValueError):
    """A dataset cannot be read: the message names the file, the episode and the field."""


class Unsupported(HeadraceError, NotImplementedError):
    """This operating system lacks a feature that the call needs; the message names it and the alternative."""


class WorkerDied(HeadraceError):
    """A collecting process ended unexpectedly.

    Attributes:
        worker_idx: index of the worker.
        exitcode: its exit code; negative for a signal; None while unknown.
    """

    def __init__(self, message: str, *, worker_idx: int, exitcode: int | None = None) -> None:
        super().__init__(message)
        self.worker_idx = worker_idx
        self.exitcode = exitcode

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_worker_died, (self.args[0], self.worker_idx, self.exitcode)


def _rebuild_worker_died(message: str, worker_idx: int, exitcode: int | None) -> WorkerDied:
    return WorkerDied(message, worker_idx=worker_idx, exitcode=exitcode)
