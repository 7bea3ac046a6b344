"""A number in memory that two processes share: one of them raises it, the other one reads it."""

from __future__ import annotations

import cython

if cython.compiled:
    from cython.cimports.headrace.kernels.atomics import load, store
else:
    from headrace.kernels.kinds import Int, Longs


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
