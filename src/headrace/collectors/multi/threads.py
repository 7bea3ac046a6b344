"""Numbers of threads in the learner's process."""

# Rules: collectors CD5

from __future__ import annotations

import os
import sys


class TorchThreads:
    """torch's thread count of this process, until `close`. Without torch it does nothing.

    Args:
        num_threads: None leaves the count alone.
    """

    def __init__(self, num_threads: int | None) -> None:
        torch = sys.modules.get("torch")
        self._before: int | None = None
        if num_threads is not None and torch is not None:
            self._before = torch.get_num_threads()
            torch.set_num_threads(num_threads)

    def close(self) -> None:
        """Restores the count. Further calls do nothing."""
        before, self._before = self._before, None
        if before is not None:
            sys.modules["torch"].set_num_threads(before)


def default_threads(workers: int) -> int:
    """Returns the number of threads that copy batches of W workers: W, at most the cores of this process.

    >>> default_threads(1)
    1
    """
    return max(1, min(workers, len(os.sched_getaffinity(0))))
