"""Images that Minari stored as JPEG."""

# Rules: datasets K11

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Array
from headrace.errors import SpecError

_START = b"\xff\xd8\xff"
_END = b"\xff\xd9"


def is_jpeg(row: Any) -> bool:
    r"""Whether a row of bytes is one JPEG file; the metadata does not say it, because Minari 0.5.3 wrote both kinds.

    >>> is_jpeg(np.zeros(4, np.uint8)), is_jpeg(b"\xff\xd8\xff...\xff\xd9")
    (False, True)
    """
    raw = bytes(row)
    return raw.startswith(_START) and raw.rstrip(b"\0").endswith(_END)


def decode_jpeg_rows(rows: Sequence[Any], shape: tuple[int, ...] | None, path: str) -> Array:
    """Decodes JPEG files: uint8 `[len(rows), height, width]`, or `[len(rows), height, width, 3]` with colours.

    Args:
        rows: the bytes of one file each.
        shape: of each image; None takes the shape of the first.
        path: of the column, for errors.

    Raises:
        SpecError: a row is not an image, or is an image of another shape; with the path and the row.
        ImportError: Pillow is missing.
    """
    images: list[Array] = []
    for number, row in enumerate(rows):
        image = _decode(bytes(row), f"{path}: row {number}")
        expected = shape if shape is not None else images[0].shape if images else image.shape
        if image.size != np.prod(expected, dtype=np.int64) or image.shape[:2] != expected[:2]:
            raise SpecError(
                f"{path}: row {number}: expected an image {list(expected)}, got {list(image.shape)}"
            )
        images.append(image.reshape(expected))
    return np.stack(images)


def _decode(raw: bytes, where: str) -> Array:
    try:
        from PIL import Image
    except ImportError as missing:
        raise ImportError('images in JPEG need Pillow: pip install "headrace[minari]"') from missing
    try:
        with Image.open(io.BytesIO(raw), formats=["JPEG"]) as image:
            return np.asarray(image, np.uint8)
    # Pillow raises these on damaged files, and the last one on huge images.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SpecError(f"{where}: expected an image in JPEG: {error}") from error
