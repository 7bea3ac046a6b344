"""Memory of clients that are gone, in case they come back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from headrace.clock import Clock

SECONDS = 24 * 3600.0
"""How long an entry is kept."""
_MOST = 100_000

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A dict that forgets entries 24 hours after they were put, and the oldest of more than 100 000.

    Args:
        clock: tells the time.
        most: number of entries.

    >>> from headrace.testing import FakeClock
    >>> clock = FakeClock()
    >>> recent = Recent(clock)
    >>> recent.put("a", 1)
    >>> clock.advance(SECONDS / 2)
    >>> recent.put("b", 2)
    >>> clock.advance(SECONDS / 2 + 1)
    >>> recent.get("a"), recent.get("b"), len(recent)
    (None, 2, 1)
    """

    # Rules: server AK3

    def __init__(self, clock: Clock, most: int = _MOST) -> None:
        self._clock = clock
        self._most = most
        # In the order in which they were put.
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        self._forget()
        return len(self._entries)

    def put(self, key: K, value: V) -> None:
        """Notes a value from now on."""
        self._entries[key] = self._clock.monotonic(), value
        self._entries.move_to_end(key)
        self._forget()

    def get(self, key: K) -> V | None:
        """Returns a value; None if there is none any more."""
        self._forget()
        found = self._entries.get(key)
        return None if found is None else found[1]

    def pop(self, key: K) -> V | None:
        """Returns a value and forgets it; None if there is none any more."""
        found = self.get(key)
        self._entries.pop(key, None)
        return found

    def _forget(self) -> None:
        oldest = self._clock.monotonic() - SECONDS
        entries = self._entries
        while entries and (len(entries) > self._most or next(iter(entries.values()))[0] < oldest):
            entries.popitem(last=False)
