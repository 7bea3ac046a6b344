"""Many arrays for the price of one: what a kernel that is called at every step is given.

Numba takes some 45 ns for each argument of a call, and a step needs thirty. So whoever owns arrays keeps their
addresses in one array, and the kernel opens those that it needs (bench/README.md has the figures).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import array_at
from headrace.store.jit import Int, opening


def handles_of(*arrays: NDArray[Any]) -> NDArray[np.int64]:
    """Where each array begins and how many bytes it has, int64[arrays, 2].

    They say nothing of dtypes, and keep nothing alive: whoever hands them to a kernel owns the arrays. Where others
    take their places, the new handles are assigned at once, between two calls of kernels: Ctrl-C must find either the
    old or the new ones (tests/replay/test_interrupts.py).

    Raises:
        ValueError: the numbers of an array do not lie side by side, or may not be written.

    >>> handles_of(np.arange(3), np.zeros(2, np.float32))[:, 1].tolist()
    [24, 8]
    """
    for array in arrays:
        if not array.flags.carray:
            raise ValueError(
                f"expected arrays whose numbers lie side by side and may be written, got {array.flags}"
            )
    found = [(array.__array_interface__["data"][0], array.nbytes) for array in arrays]
    return np.array(found, np.int64).reshape(-1, 2)


@opening
def opened(handles: NDArray[np.int64], place: Int, dtype: type[np.generic]) -> NDArray[Any]:
    """The array of this place, flat, inside a kernel.

    Args:
        handles: int64[arrays, 2], see `handles_of`.
    """
    return array_at(handles[place, 0], handles[place, 1], dtype)
