"""Arrays that came with an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.server.client.blocks import MappedBlocks
from headrace.server.messages.answers import PlacedArray


def buffer_of(payload: Payload) -> NDArray[np.uint8]:
    """Returns a payload as bytes that the caller may write into."""
    return np.frombuffer(bytearray(payload) if isinstance(payload, bytes) else payload, np.uint8)


def arrays_of(places: Sequence[PlacedArray], payload: Payload, blocks: MappedBlocks) -> list[NDArray[Any]]:
    """Returns arrays that came with an answer; the caller may write into them.

    Raises:
        ProtocolError, ValueError, TypeError: they are not numbers within the payload or a block.
    """
    roots: dict[int | None, NDArray[np.uint8]] = {None: buffer_of(payload)}
    arrays = []
    for each in places:
        root = roots.get(each.block)
        if root is None:
            assert each.block is not None
            root = roots[each.block] = blocks.array(each.block)
        arrays.append(array_in(root, each))
    return arrays


def array_in(root: NDArray[np.uint8], place: PlacedArray) -> NDArray[Any]:
    """Returns one array.

    Raises:
        ValueError, TypeError: it is not of numbers within these bytes.
    """
    dtype, nbytes = _form(place.dtype, place.shape)
    if not 0 <= place.offset <= root.nbytes - nbytes:
        raise ValueError(f"expected an array within {root.nbytes} bytes, got {place}")
    return np.ndarray(place.shape, dtype, root, place.offset)


@lru_cache(256)
def _form(name: str, shape: tuple[int, ...]) -> tuple[np.dtype[Any], int]:
    """Returns the dtype and the bytes of an array; the arrays of most batches have the same.

    Raises:
        ValueError, TypeError: it is not one of numbers.
    """
    dtype = np.dtype(name)
    if dtype.kind not in "biufc" or any(size < 0 for size in shape):
        raise ValueError(f"expected arrays of numbers, got {name} of shape {shape}")
    return dtype, dtype.itemsize * math.prod(shape)
