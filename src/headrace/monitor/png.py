"""Encodes images as PNG, without a library."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GRAY, _RGB = 0, 2


def encode_png(image: NDArray[np.uint8]) -> bytes:
    r"""Returns an image as a PNG file; PNG specification (ISO/IEC 15948), sections 5 and 11.2.

    Args:
        image: uint8[H, W] for gray, uint8[H, W, 3] for colours, H and W at least 1.

    Raises:
        ValueError: another shape or dtype.

    >>> encode_png(np.zeros((2, 3), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    if image.dtype != np.uint8 or image.size == 0 or image.shape[2:] not in ((), (3,)) or image.ndim < 2:
        raise ValueError(f"expected uint8[H, W] or uint8[H, W, 3], got {image.dtype}{list(image.shape)}")
    height, width = image.shape[:2]
    # Each line begins with the number of its filter; 0 is none.
    lines = np.zeros((height, 1 + image[0].size), np.uint8)
    lines[:, 1:] = image.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _GRAY if image.ndim == 2 else _RGB, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
