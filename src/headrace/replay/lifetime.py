"""Open, closed, or inherited by a forked process: whether a replay can be used."""

from __future__ import annotations

from headrace.errors import Closed
from headrace.forking import HomeProcess, may_read_copies

_REMEDY = (
    "Use it in the process that made it: collect in another process with hr.AsyncCollector, which writes into this "
    "replay, or send steps to its process with a queue of multiprocessing. To read in forked workers, use "
    "hr.loaders.Loader(..., snapshot=True), or save a checkpoint and call hr.Replay.load(path) in each worker"
)


class Lifetime:
    """State of a replay from its making to its end, shared by its parts.

    Attributes:
        is_closed: whether the replay was closed, or is inherited. Calls look at this attribute alone while it is open.
        is_inherited: whether this is the copy of a forked child.

    >>> lifetime = Lifetime()
    >>> lifetime.is_closed = True
    >>> lifetime.check_open()
    Traceback (most recent call last):
    headrace.errors.Closed: the replay is closed
    """

    def __init__(self) -> None:
        self._home = HomeProcess("this replay", _REMEDY)
        self.is_closed = self.is_inherited = False

    def check_open(self) -> None:
        """Raises if the replay cannot be used here.

        Raises:
            Closed: it is closed.
            RuntimeError: this process was forked from the one that made it.
        """
        if not self.is_closed:
            return
        if not self.is_inherited:
            raise Closed("the replay is closed")
        if not may_read_copies():
            self._home.check()

    def become_inherited(self) -> None:
        """Marks the copy of a forked child, unless the replay was closed before."""
        if not self.is_closed:
            self.is_closed = self.is_inherited = True
