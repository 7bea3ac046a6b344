"""Every error that Headrace raises by name.

    HeadraceError
     +-- SpecError (ValueError)               data that does not fit its signature
     +-- DeadlineExceeded (TimeoutError)      a wait that ended by its timeout
     +-- Closed                               closed by this side; it takes no more calls
     +-- Disconnected (ConnectionError)       the other side is gone
     +-- AuthenticationError (PermissionError)  not raised yet: nothing connects to another machine
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
    """The root of the errors above; catch it to catch them all."""


class SpecError(HeadraceError, ValueError):
    """Data that does not fit its signature: the message has the path, what was expected, what came."""


class DeadlineExceeded(HeadraceError, TimeoutError):
    """A wait ended by its timeout; nothing was taken.

    Attributes:
        pending: how many items are not applied yet (0 where that has no meaning).
    """

    def __init__(self, message: str, *, pending: int = 0) -> None:
        super().__init__(message)
        self.pending = pending


class Closed(HeadraceError):
    """The object was closed on this side and takes no more calls."""


class Disconnected(HeadraceError, ConnectionError):
    """The peer is gone.

    Attributes:
        pending: how many items are not acknowledged.
    """

    def __init__(self, message: str, *, pending: int = 0) -> None:
        super().__init__(message)
        self.pending = pending


class AuthenticationError(HeadraceError, PermissionError):
    """The peer did not prove its identity. Not raised yet: nothing connects to another machine."""


class ItemNotFound(HeadraceError, KeyError):
    """No item has this key.

    Not raised yet. `Replay.update_priorities` and `Replay.delete` skip keys of items that are gone, count them, and
    return the number of keys that were found.
    """

    def __str__(self) -> str:
        # KeyError shows repr(message); ours are sentences.
        return str(self.args[0]) if self.args else ""


class StoreFull(HeadraceError):
    """No free page is left for a step; the message says what holds the pages. Nothing stored was lost."""


class CheckpointError(HeadraceError):
    """A checkpoint or a store on disk is damaged, foreign, or in use."""


class DatasetError(HeadraceError, ValueError):
    """A dataset cannot be read: the message names the file, the episode and the field."""


class Unsupported(HeadraceError, NotImplementedError):
    """This operating system lacks what the call needs: the message says what, and what to do instead."""


class WorkerDied(HeadraceError):
    """A collecting process ended before its time.

    Attributes:
        worker_idx: which worker.
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
