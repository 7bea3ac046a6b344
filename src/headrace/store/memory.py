"""Carving the arrays of a store from its arena, inside a kernel.

Numba takes 40 ns for each array that it is given, and several times that for a tuple of them. Kernels that are called
at every step are given the arena as one array of bytes, and the places of what they need.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, kernel, opening
from headrace.store.layout import PAGE_WORDS, StoreArrays

# Where the arrays with the values of rows begin among the places, records first; those before tell about rows.
_FIRST_OF_VALUES = 7


@opening
def open_store(memory: NDArray[np.uint8], places: NDArray[np.int64], page_rows: Int) -> StoreArrays:
    """The arrays of a store.

    Args:
        memory: uint8[...], the arena.
        places: int64[..., 2]: where each array begins and ends, in the order of `layout.plan`.
    """
    return StoreArrays(
        memory[places[0, 0] : places[0, 1]]
        .view(np.int64)
        .reshape(((places[0, 1] - places[0, 0]) // (8 * PAGE_WORDS), PAGE_WORDS)),
        memory[places[2, 0] : places[2, 1]].view(np.uint32),
        memory[places[3, 0] : places[3, 1]].view(np.uint32),
        memory[places[4, 0] : places[4, 1]].view(np.uint32),
        memory[places[5, 0] : places[5, 1]].view(np.int64),
        memory[places[1, 0] : places[1, 1]].view(np.int64),
        page_rows,
    )


@opening
def open_records(memory: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The records of a store (`store.records`) as bytes."""
    return memory[places[_FIRST_OF_VALUES, 0] : places[_FIRST_OF_VALUES, 1]]


@kernel
def clear_row(memory: NDArray[np.uint8], places: NDArray[np.int64], rows: Int, row: Int) -> None:
    """Write zeros into every column of a row.

    Args:
        memory, places: see `open_store`.
        rows: how many the store has.
    """
    for array in range(_FIRST_OF_VALUES, places.shape[0]):
        nbytes = (places[array, 1] - places[array, 0]) // rows
        first = places[array, 0] + row * nbytes
        for place in range(first, first + nbytes):
            memory[place] = 0
