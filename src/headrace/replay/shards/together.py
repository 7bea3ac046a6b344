"""Calls to several shards: one after another, or at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol


class Together(Protocol):
    """Makes calls to different shards."""

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Returns the results of calls that raise nothing, in their order."""

    def close(self) -> None:
        """Ends its threads."""


class OneAfterAnother:
    """For shards of this process, which a thread for each would not make quicker."""

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """See `Together`."""
        return [call() for call in calls]

    def close(self) -> None:
        """Does nothing."""


class AtOnce:
    """For shards elsewhere: the calls wait for the network at the same time. Thread-safe.

    Args:
        most: number of threads.
    """

    def __init__(self, most: int) -> None:
        self._threads = ThreadPoolExecutor(most, thread_name_prefix="headrace-shards")

    def __call__(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """See `Together`."""
        others = [self._threads.submit(call) for call in calls[1:]]
        return [*(call() for call in calls[:1]), *(other.result() for other in others)]

    def close(self) -> None:
        """See `Together`."""
        self._threads.shutdown(wait=True)
