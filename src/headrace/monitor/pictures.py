"""Images among the columns of a signature, and how they are shown."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

Image = NDArray[np.uint8]

# Pixels of the shorter side of an array that counts as an image, at least.
_LEAST_SIDE = 8
# Of gray images, colour images, and stacks of four frames.
_CHANNELS = (1, 3, 4)


def is_image(shape: tuple[int, ...], dtype: DTypeLike) -> bool:
    """Returns True for uint8 with two axes, or with three of which the first or the last has channels.

    >>> is_image((84, 84, 3), np.uint8), is_image((4, 84, 84), np.uint8), is_image((4,), np.float32)
    (True, True, False)
    """
    if dtype != np.uint8 or len(shape) not in (2, 3):
        return False
    sides = shape
    if len(sides) == 3:
        if sides[-1] not in _CHANNELS and sides[0] not in _CHANNELS:
            return False
        sides = sides[:2] if sides[-1] in _CHANNELS else sides[1:]
    return min(sides) >= _LEAST_SIDE


def as_picture(image: Image) -> Image:
    """Returns an image as gray `[H, W]` or colour `[H, W, 3]`; from a stack of frames, the newest."""
    if image.ndim == 2:
        return image
    if image.shape[-1] not in _CHANNELS:
        image = np.moveaxis(image, 0, -1)
    return image if image.shape[-1] == 3 else image[..., -1]
