"""A condition whose `with` statement Ctrl-C does not part."""

from __future__ import annotations

import threading
from collections.abc import Callable
from operator import attrgetter


class SignalSafeCondition(threading.Condition):
    """A condition that a `with` statement takes and gives as it does the lock itself.

    `threading.Condition` does it in functions of Python. Ctrl-C may come when the lock is taken and such a function has
    not returned, or before it has given the lock back. Then the lock stays taken, and other threads wait for ever.

    >>> condition = SignalSafeCondition(threading.RLock())
    >>> with condition:
    ...     condition.notify_all()
    """

    # The statement gets the lock's own methods, and calls no function of Python (test_conditions.py).
    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))
    # Of `threading.Condition`.
    _is_owned: Callable[[], bool]

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Condition.wait`. The lock, an RLock that is held once, is held again also after Ctrl-C."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # Ctrl-C came between the release of the lock and the wait.
                self.acquire()
            raise
