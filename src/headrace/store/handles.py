"""Many arrays for the price of one: what a kernel that is called at every step is given.

Numba takes some 40 ns for each argument of a call, and a step needs thirty. So whoever owns arrays keeps their
addresses in one array, and the kernel opens those that it needs (bench/README.md has the figures).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, array_at, opening


class Handles:
    """The addresses of arrays, for kernels. It keeps the arrays; kernels that open them must end before it does.

    Attributes:
        words: int64[arrays, 2]: where each begins and how many bytes it has.

    >>> handles = Handles(np.arange(3), np.zeros(2, np.float32))
    >>> handles.words[:, 1].tolist()
    [24, 8]
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        self.words = np.empty((len(arrays), 2), np.int64)
        self._arrays = list(arrays)
        self.replace(0, *arrays)

    def replace(self, first: int, *arrays: NDArray[Any]) -> None:
        """Other arrays in the places from `first` on; no kernel may be under way."""
        for place, array in enumerate(arrays, first):
            assert array.flags.c_contiguous, "kernels open arrays whose numbers lie side by side"
            self._arrays[place] = array
            self.words[place] = array.__array_interface__["data"][0], array.nbytes


@opening
def opened(handles: NDArray[np.int64], place: Int, dtype: type[np.generic]) -> NDArray[Any]:
    """The array of this place, flat, inside a kernel.

    Args:
        handles: int64[arrays, 2], the `words` of `Handles`.
    """
    return array_at(handles[place, 0], handles[place, 1], dtype)
