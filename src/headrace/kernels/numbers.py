"""Random numbers of a NumPy generator, drawn in kernels."""

from __future__ import annotations

import cython
import numpy as np

if cython.compiled:
    from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
    from cython.cimports.numpy.random import bitgen_t
else:
    from headrace.kernels.kinds import Doubles, Float, Int


class Numbers:
    """The next numbers of a generator, in [0, 1), as its `random` would give them.

    Args:
        generator: the generator. No other thread may draw from it meanwhile: its own lock is not taken.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        if cython.compiled:
            self._bits = cython.cast(
                cython.pointer[bitgen_t],
                PyCapsule_GetPointer(generator.bit_generator.capsule, b"BitGenerator"),
            )

    def next(self) -> Float:
        """The next number."""
        if cython.compiled:
            number: Float = self._bits.next_double(self._bits.state)
            return number
        else:
            return self._generator.random()

    def fill(self, numbers: Doubles, begin: Int, end: Int) -> None:
        """Write the next numbers to `numbers[begin:end]`."""
        for place in range(begin, end):
            numbers[place] = self.next()
