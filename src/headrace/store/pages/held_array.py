"""Arrays that hold pages: the pages are given back when the last array over the same memory is garbage."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Hold:
    """Base object of held arrays: it is garbage when every array over it is."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


def held_array(array: NDArray[Any], drop: Callable[[], object]) -> NDArray[Any]:
    """Returns an array over the same memory; `drop` is called when the last array over it is garbage."""
    hold = _Hold(array)
    weakref.finalize(hold, drop)
    return np.asarray(hold)
