"""Collecting freely into a replay, while the learner samples it."""

# Rules: collectors CF4 to CF8

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager


class RunningSurface(ABC):
    """Methods that begin, pause and end free running."""

    @abstractmethod
    def start(self) -> None:
        """Begins to fill the replay freely, until `total_frames` or `shutdown`, and returns.

        A full replay stops the collection until the learner makes room. A failure is logged at once, ends waits to
        sample the replay, and is raised by the next call of another method.

        Raises:
            RuntimeError: without `replay_buffer`, when started already, or after iteration has begun.
            WorkerDied: a worker is gone.
            Closed: after `shutdown`.
        """

    @abstractmethod
    def pause(self) -> AbstractContextManager[None]:
        """Stops between two steps for the time of a `with` block. Meanwhile all collected steps are in the replay.

        Where `postproc` changes the rows of a replay, it stops at the end of a rollout.

        Raises:
            RuntimeError: not running, or paused already.
            DeadlineExceeded: a step did not end within 30 s; the collection goes on.
            WorkerDied: a worker is gone.
            Closed: after `shutdown`.
        """

    @abstractmethod
    def async_shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """Stops between two steps, writes all collected steps into the replay, and shuts down as `shutdown` does.

        Args:
            timeout, close_env: see `shutdown`.
        """
