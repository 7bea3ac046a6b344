"""zstd of the standard library (Python 3.14), or of the package `backports.zstd` with the same interface (PEP 784)."""

from __future__ import annotations

import importlib.util
import sys
import threading
from functools import cache
from typing import Any

# Frames of Atari games shrink to less than 1/100 at 2 GB/s; higher levels gain little.
_LEVEL = 1
# Pieces below the size from which on the allocator asks the system for fresh pages.
_PIECE_NBYTES = 100_000
# Memory of a decompressor in proportion to a number in the data: 8 MiB. This level needs 512 KiB.
_MOST_WINDOW_LOG = 23
_LIBRARY = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_LOCAL = threading.local()


def is_installed() -> bool:
    """Whether there is zstd, without importing it."""
    try:
        return importlib.util.find_spec(_LIBRARY) is not None
    except ModuleNotFoundError:  # Not even its parent.
        return False


@cache
def _library() -> Any:
    """Returns the module.

    Raises:
        ImportError: it is not installed.
    """
    try:
        return importlib.import_module(_LIBRARY)
    except ImportError as error:
        raise ImportError(f'compression by zstd needs {_LIBRARY}: pip install "headrace[zstd]"') from error


def check_installed() -> None:
    """Raises `ImportError` without zstd."""
    _library()


def compressed(data: memoryview) -> bytes:
    """Returns bytes as a frame of zstd."""
    compressor = getattr(_LOCAL, "compressor", None)
    if compressor is None:  # One for each thread: two threads would wait for each other.
        compressor = _LOCAL.compressor = _library().ZstdCompressor(_LEVEL)
    found: bytes = compressor.compress(data, mode=compressor.FLUSH_FRAME)
    return found


def decompress_into(data: memoryview, destination: memoryview) -> None:
    """Writes the contents of a frame of zstd; never takes memory in proportion to a number in the frame.

    Args:
        data: the frame.
        destination: bytes, as many as the frame contains.

    Raises:
        ValueError: it is not one frame, or contains more or fewer bytes.
    """
    zstd = _library()
    options = {zstd.DecompressionParameter.window_log_max: _MOST_WINDOW_LOG}
    decompressor = zstd.ZstdDecompressor(options=options)
    written, expected, rest = 0, len(destination), data
    while not decompressor.eof:
        try:
            # One byte more than expected, to see that nothing follows.
            piece = decompressor.decompress(rest, max_length=min(_PIECE_NBYTES, expected - written + 1))
        except zstd.ZstdError as error:
            raise ValueError(f"the data cannot be decompressed: {error}") from error
        if written + len(piece) > expected or not (piece or decompressor.eof):
            break
        destination[written : written + len(piece)] = piece
        written += len(piece)
        rest = memoryview(b"")
    if written != expected or not decompressor.eof or decompressor.unused_data:
        raise ValueError(
            f"expected compressed data of {expected} bytes, got more, fewer, or something behind them"
        )
