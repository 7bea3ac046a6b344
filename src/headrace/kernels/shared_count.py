"""A number in memory that two processes share: one of them raises it, the other one reads it."""

from __future__ import annotations

import time

import cython

if cython.compiled:
    from cython.cimports.headrace.kernels.atomics import let_others_run, load, nanoseconds, store
else:
    from headrace.kernels.kinds import Bool, Int, Longs


class SharedCount:
    """A number in shared memory.

    A process that reads a number also sees everything that the other one did before it wrote this number.

    Args:
        memory: int64[n], of which the first entry is the number.

    >>> import numpy as np
    >>> memory = np.zeros(1, np.int64)
    >>> count = SharedCount(memory)
    >>> count.set(5)
    >>> count.get()
    5
    """

    def __init__(self, memory: Longs) -> None:
        self._memory = memory

    def get(self) -> Int:
        """Returns the number."""
        if cython.compiled:
            number: Int = load(cython.address(self._memory[0]))
            return number
        else:
            return int(self._memory[0])

    def set(self, number: Int) -> None:
        """Writes the number."""
        if cython.compiled:
            store(cython.address(self._memory[0]), number)
        else:
            self._memory[0] = number

    def is_reached(self, number: Int, most_nanoseconds: Int) -> Bool:
        """Returns whether the number is reached; waits for it for a short time, and lets other threads run meanwhile.

        Args:
            number: to be reached.
            most_nanoseconds: of the wait, during which the thread uses its processor if no other one wants to run.
        """
        if cython.compiled:
            place = cython.address(self._memory[0])
            with cython.nogil:
                end: Int = nanoseconds() + most_nanoseconds
                while load(place) < number and nanoseconds() < end:
                    let_others_run()
        else:
            end = time.monotonic_ns() + most_nanoseconds
            while self.get() < number and time.monotonic_ns() < end:
                time.sleep(0)
        return self.get() >= number
