"""Ctrl-C held back for the time of a call whose result must not be lost."""

from __future__ import annotations

import threading

# `signal.signal` first tries to make an enum of the handler, and its error holds the handler's text: 60 us a call in
# Python 3.11, where this takes 1 us.
from _signal import SIGINT, getsignal, signal
from types import FrameType, TracebackType
from typing import Any


class Uninterrupted:
    """Lets Ctrl-C take effect at the end of a `with` block of the main thread, not within it.

    A library that is called there may hand over results only once: an exception between its return and the next
    statement would lose them.

    >>> import signal
    >>> done = []
    >>> try:
    ...     with Uninterrupted():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all")
    ... except KeyboardInterrupt:
    ...     done.append("then Ctrl-C")
    >>> done
    ['all', 'then Ctrl-C']
    """

    __slots__ = ("_before", "_frame", "_is_noted")

    def __enter__(self) -> None:
        self._before: Any = None
        self._is_noted = False
        if threading.get_ident() == threading.main_thread().ident:
            before = getsignal(SIGINT)
            if callable(before):
                self._before = before
                signal(SIGINT, self._note)

    def _note(self, _: int, frame: FrameType | None) -> None:
        self._is_noted, self._frame = True, frame

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        signal(SIGINT, self._before)
        if self._is_noted:
            self._before(SIGINT, self._frame)
