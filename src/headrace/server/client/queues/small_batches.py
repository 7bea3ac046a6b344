"""Batches of a queue that lie in their messages."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.spec import Signature

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.numpy import import_array

    import_array()
else:
    from headrace.kernels.kinds import Int, Longs

    def array_at(
        owner: bytearray, begin: Any, kind: np.dtype[Any], rows: Int, axes: Int, lengths: Longs, first: Int
    ) -> NDArray[Any]:
        """Returns one array; a C function in `small_batches.pxd`, which the plain form does not need."""
        raise NotImplementedError


class SmallBatches:
    """Reads the batches of one queue; see `SmallQueueBatch`.

    Args:
        signature: of a sample.

    >>> batches = SmallBatches(Signature.like({"frame": np.zeros(2, np.uint8), "reward": np.int16(0)}))
    >>> [array.tolist() for array in batches.arrays(2, bytearray([1, 2, 3, 4, 5, 0, 6, 0]))]
    [[[1, 2], [3, 4]], [5, 6]]
    """

    def __init__(self, signature: Signature) -> None:
        specs = list(signature.columns.values())
        self._nbytes = signature.nbytes
        self._shapes = [spec.shape for spec in specs]
        self._dtypes = [spec.dtype.newbyteorder("<") for spec in specs]
        self._leaf_nbytes = np.array([spec.nbytes for spec in specs], np.int64)
        self._alignments = np.array([dtype.alignment for dtype in self._dtypes], np.int64)
        self._axes = np.array([len(shape) for shape in self._shapes], np.int64)
        # One entry more, so that a leaf without axes has a first entry too.
        self._lengths = np.array([length for shape in self._shapes for length in shape] + [0], np.int64)

    def arrays(self, rows: Int, data: bytearray) -> list[NDArray[Any]]:
        """Returns the leaves, aligned arrays `[rows, ...]`, over `data` where they can be.

        Raises:
            ValueError, OverflowError: the length of `data` is not that of so many samples.
        """
        if rows < 0 or len(data) != rows * self._nbytes:
            raise ValueError(f"expected {rows} samples of {self._nbytes} bytes, got {len(data)} bytes")
        arrays: list[NDArray[Any]] = []
        offset: Int = 0
        first: Int = 0
        for leaf in range(len(self._dtypes)):
            arrays.append(self._array(leaf, rows, data, offset, first))
            offset += rows * self._leaf_nbytes[leaf]
            first += self._axes[leaf]
        return arrays

    def _array(self, leaf: Int, rows: Int, data: bytearray, offset: Int, first: Int) -> NDArray[Any]:
        if cython.compiled:
            begin = PyByteArray_AS_STRING(data) + offset
            if not cython.cast(Int, begin) % self._alignments[leaf]:
                return array_at(data, begin, self._dtypes[leaf], rows, self._axes[leaf], self._lengths, first)
        array: NDArray[Any] = np.ndarray((rows, *self._shapes[leaf]), self._dtypes[leaf], data, offset)
        # Behind leaves of fewer bytes it may lie where compiled code cannot read its numbers.
        return array if array.flags.aligned else array.copy()
