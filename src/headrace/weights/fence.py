"""Order of reads and writes of memory that processes share."""

from __future__ import annotations

import threading

from headrace.system import register_at_fork

_FENCE = threading.Lock()


def _renew_fence() -> None:
    global _FENCE
    _FENCE = threading.Lock()


# In a forked child another thread of the parent may have held it.
register_at_fork(after_in_child=_renew_fence)


def memory_fence() -> None:
    """Orders the reads and writes before the call before those after it, for other processors.

    Processors other than x86 may reorder plain writes. Taking and releasing a lock twice is two release-acquire pairs,
    which is a full fence, and the only fence in Python. The lock belongs to this process and is held for this moment
    only.
    """
    with _FENCE:
        pass
    with _FENCE:
        pass
