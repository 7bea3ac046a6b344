"""The order in which workers that are owed rollouts begin them."""

# Rules: collectors CV7, CV8

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from typing import NamedTuple


class Turns(ABC):
    """Workers that are owed rollouts, as far as they were not found blocked. Not thread-safe."""

    def __init__(self) -> None:
        self._blocked: set[int] = set()

    @abstractmethod
    def add(self, worker_idx: int, collecting: int) -> None:
        """Adds a worker that is owed rollouts, or notes its new place.

        Args:
            worker_idx: the worker.
            collecting: rollouts that it has begun and not completed.
        """

    @abstractmethod
    def take(self) -> int | None:
        """Removes and returns the worker whose turn it is; None: there is none now."""

    @abstractmethod
    def begun(self, worker_idx: int) -> None:
        """Notes that a worker has begun a rollout."""

    @abstractmethod
    def clear(self) -> None:
        """Removes all workers that were added."""

    def block(self, worker_idx: int) -> None:
        """Leaves a worker out until `unblock`."""
        self._blocked.add(worker_idx)

    def unblock(self, worker_idx: int) -> None:
        """Notes that a worker may begin rollouts again; `add` follows if it is owed any."""
        self._blocked.discard(worker_idx)


class _Place(NamedTuple):
    """The place of a worker among those that are owed rollouts: the smallest begins first.

    Attributes:
        collecting: rollouts that it has begun and not completed.
        last_turn: of its newest rollout among all that were begun.
        worker_idx: the worker.
    """

    collecting: int
    last_turn: int
    worker_idx: int


class LongestIdle(Turns):
    """Turns of which the worker comes first that has been idle for longest.

    The workers wait in a heap, so that a turn takes O(log W).

    >>> turns = LongestIdle(2)
    >>> turns.add(0, collecting=1); turns.add(1, collecting=0)
    >>> turns.take(), turns.take(), turns.take()
    (1, 0, None)
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        # The place of each worker's newest rollout among all that were begun.
        self._last_turns = [0] * workers
        self._turns = 0
        # An entry is valid if the worker's place is it.
        self._queue: list[_Place] = []
        self._places: dict[int, _Place] = {}

    def add(self, worker_idx: int, collecting: int) -> None:
        """See `Turns.add`."""
        place = _Place(collecting, self._last_turns[worker_idx], worker_idx)
        if worker_idx not in self._blocked and self._places.get(worker_idx) != place:
            self._places[worker_idx] = place
            heapq.heappush(self._queue, place)

    def take(self) -> int | None:
        """See `Turns.take`."""
        while self._queue:
            place = heapq.heappop(self._queue)
            if self._places.get(place.worker_idx) == place:
                del self._places[place.worker_idx]
                return place.worker_idx
        return None

    def begun(self, worker_idx: int) -> None:
        """See `Turns.begun`."""
        self._turns += 1
        self._last_turns[worker_idx] = self._turns

    def clear(self) -> None:
        """See `Turns.clear`."""
        self._places.clear()


class Rotation(Turns):
    """Turns of some workers one after another: between two of a worker each other one has at most one.

    A worker whose turn it is holds the others until it is owed a rollout. One that is blocked is left out.

    Args:
        workers: those that take turns are 0 to `workers - 1`; others never come.

    Attributes:
        workers: as given.

    >>> turns = Rotation(2)
    >>> turns.add(1, collecting=0)
    >>> turns.take()  # Worker 0 is first.
    >>> turns.add(0, collecting=0)
    >>> turns.take()
    0
    >>> turns.begun(0)
    >>> turns.take()
    1
    """

    def __init__(self, workers: int) -> None:
        super().__init__()
        self.workers = workers
        # The worker whose newest rollout was begun first comes first.
        self._order = list(range(workers))
        self._waiting: set[int] = set()

    def add(self, worker_idx: int, collecting: int) -> None:  # noqa: ARG002 - turns do not depend on it
        """See `Turns.add`."""
        self._waiting.add(worker_idx)

    def take(self) -> int | None:
        """See `Turns.take`."""
        first = next((each for each in self._order if each not in self._blocked), None)
        if first is None or first not in self._waiting:
            return None
        self._waiting.discard(first)
        return first

    def begun(self, worker_idx: int) -> None:
        """See `Turns.begun`."""
        self._order.remove(worker_idx)
        self._order.append(worker_idx)

    def clear(self) -> None:
        """See `Turns.clear`."""
        self._waiting.clear()
