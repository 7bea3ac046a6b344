"""Images in files as arrays, by Pillow."""

# Rules: datasets G10, K11

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Array
from headrace.errors import SpecError

# Of 8 bits a channel; indices of a palette and depths of 16 bits would lose their meaning as uint8.
_MODES = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")


def decode_images(
    rows: Sequence[Any], shape: tuple[int, ...] | None, path: str, formats: tuple[str, ...]
) -> Array:
    """Decodes image files: uint8 `[len(rows), height, width]`, or `[len(rows), height, width, 3]` with colours.

    Args:
        rows: the bytes of one file each.
        shape: of each image; None takes the shape of the first.
        path: of the column, for errors.
        formats: Pillow's names of the formats that are expected, such as "JPEG".

    Raises:
        SpecError: a row is not an image, or is an image of another shape; with the path and the row.
        ImportError: Pillow is missing.
    """
    images: list[Array] = []
    for number, row in enumerate(rows):
        image = _decode(bytes(row), f"{path}: row {number}", formats)
        expected = shape if shape is not None else images[0].shape if images else image.shape
        if image.size != np.prod(expected, dtype=np.int64) or image.shape[:2] != expected[:2]:
            raise SpecError(
                f"{path}: row {number}: expected an image {list(expected)}, got {list(image.shape)}"
            )
        images.append(image.reshape(expected))
    return np.stack(images)


def _decode(raw: bytes, where: str, formats: tuple[str, ...]) -> Array:
    try:
        from PIL import Image
    except ImportError as missing:
        raise ImportError('images in files need Pillow: pip install "headrace[minari]"') from missing
    try:
        with Image.open(io.BytesIO(raw), formats=formats) as image:
            if image.mode not in _MODES:
                raise ValueError(f"expected grey values or colours of 8 bits, got the mode {image.mode}")
            return np.asarray(image, np.uint8)
    # Pillow raises these on damaged files, and the last one on huge images.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SpecError(f"{where}: expected an image in {' or '.join(formats)}: {error}") from error
