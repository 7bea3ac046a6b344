"""Arrays that came with an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.server.messages.answers import Answer, PlacedArray, QueueBatch, Sampled, SampledAgain
from headrace.server.messages.dtypes import dtype_of


def buffer_of(payload: Payload) -> NDArray[np.uint8]:
    """Returns a payload as bytes that the caller may write into."""
    return np.frombuffer(bytearray(payload) if isinstance(payload, bytes) else payload, np.uint8)


def named_blocks(answer: Answer) -> Sequence[int]:
    """Returns the blocks in which arrays of an answer lie, in the order in which it names them."""
    if isinstance(answer, SampledAgain):
        return answer.blocks
    if isinstance(answer, Sampled | QueueBatch):
        numbers = dict.fromkeys(each.block for each in answer.arrays)
        return [number for number in numbers if number is not None]
    return ()


def arrays_of(
    places: Sequence[PlacedArray], payload: Payload, blocks: Mapping[int, NDArray[np.uint8]]
) -> list[NDArray[Any]]:
    """Returns arrays that came with an answer; the caller may write into them.

    Raises:
        ValueError, TypeError: they are not numbers within the payload or a block.
    """
    buffer = buffer_of(payload)
    return [array_in(buffer if each.block is None else blocks[each.block], each) for each in places]


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
        ValueError: it is not one of numbers.
    """
    dtype = dtype_of(name)
    if any(size < 0 for size in shape):
        raise ValueError(f"expected arrays of numbers, got {name} of shape {shape}")
    return dtype, dtype.itemsize * math.prod(shape)
