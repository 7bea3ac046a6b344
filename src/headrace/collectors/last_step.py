"""The time of a worker's newest step and the number of its transitions, in memory that it shares with its collector."""

# Rules: collectors CT, CX3, CX5

from __future__ import annotations

import time
from typing import Any

import numpy as np

from headrace.store.memory.arena import Arena

_NBYTES = 16


class LastStep:
    """Two numbers in shared memory: the worker writes them, its collector reads them, and neither waits.

    The clock (`time.monotonic`) is the same in all processes of a machine. The memory outlives a worker that is killed.

    Args:
        memory: 16 bytes.

    >>> from os import dup
    >>> ours = LastStep.new()
    >>> ours.age is None
    True
    >>> theirs = LastStep.attach(dup(ours.descriptor))
    >>> theirs.note()
    >>> theirs.taken = 8
    >>> 0 <= ours.age < 60, ours.taken
    (True, 8)
    >>> ours.release(); theirs.release()
    """

    def __init__(self, memory: Arena) -> None:
        self._memory: Arena | None = memory
        # Python writes a number through its own view in a third of the time that NumPy's array takes.
        self._numbers: Any = memory.array(0, (2,), np.float64).data

    @classmethod
    def new(cls) -> LastStep:
        """Returns the collector's end; `descriptor` goes to the worker."""
        return cls(Arena.shared(_NBYTES))

    @classmethod
    def attach(cls, descriptor: int) -> LastStep:
        """Returns the worker's end; it owns the descriptor."""
        return cls(Arena.attach(descriptor, _NBYTES))

    @property
    def descriptor(self) -> int:
        """The file descriptor of the memory, until `close`."""
        assert self._memory is not None
        return self._memory.descriptor

    @property
    def memory(self) -> Any:
        """The numbers `at` and `taken`, as a memoryview of float64[2], until `release`."""
        return self._numbers

    def note(self) -> None:
        """Notes that a step was taken now."""
        self._numbers[0] = time.monotonic()

    @property
    def at(self) -> float:
        """`time.monotonic()` at the newest step; 0 before the first."""
        return float(self._numbers[0])

    @property
    def age(self) -> float | None:
        """Seconds since the newest step; None before the first."""
        at = self.at
        return None if at == 0 else max(0.0, time.monotonic() - at)

    @property
    def taken(self) -> int:
        """Number of transitions that the worker has recorded since it was started."""
        return int(self._numbers[1])

    @taken.setter
    def taken(self, taken: int) -> None:
        self._numbers[1] = taken

    def close(self) -> None:
        """Closes the descriptor; the memory stays, with a descriptor of its own, until `release`."""
        if self._memory is not None:
            self._memory.close()

    def release(self) -> None:
        """Releases the memory; the numbers stay as they are."""
        self.close()
        self._numbers, self._memory = np.array(self._numbers).data, None
