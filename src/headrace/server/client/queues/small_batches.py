"""Batches of a queue that lie in their messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import Signature


class SmallBatches:
    """Reads the batches of one queue; see `SmallQueueBatch`.

    Args:
        signature: of a sample.

    >>> batches = SmallBatches(Signature.like({"frame": np.zeros(2, np.uint8), "reward": np.int16(0)}))
    >>> [array.tolist() for array in batches.arrays(2, bytearray([1, 2, 3, 4, 5, 0, 6, 0]))]
    [[[1, 2], [3, 4]], [5, 6]]
    """

    def __init__(self, signature: Signature) -> None:
        self._nbytes = signature.nbytes
        self._leaves = [
            (spec.shape, spec.dtype.newbyteorder("<"), spec.nbytes) for spec in signature.columns.values()
        ]

    def arrays(self, rows: int, data: bytearray) -> list[NDArray[Any]]:
        """Returns the leaves, aligned arrays `[rows, ...]`, over `data` where they can be.

        Raises:
            ValueError, OverflowError: the length of `data` is not that of so many samples.
        """
        if rows < 0 or len(data) != rows * self._nbytes:
            raise ValueError(f"expected {rows} samples of {self._nbytes} bytes, got {len(data)} bytes")
        arrays: list[NDArray[Any]] = []
        offset = 0
        for shape, dtype, nbytes in self._leaves:
            array: NDArray[Any] = np.ndarray((rows, *shape), dtype, data, offset)
            # Behind leaves of fewer bytes it may lie where compiled code cannot read its numbers.
            arrays.append(array if array.flags.aligned else array.copy())
            offset += rows * nbytes
        return arrays
