"""Images that Minari stored as JPEG."""

# Rules: datasets K11

from __future__ import annotations

from typing import Any

FORMATS = ("JPEG",)
_START = b"\xff\xd8\xff"
_END = b"\xff\xd9"


def is_jpeg(row: Any) -> bool:
    r"""Whether a row of bytes is one JPEG file; the metadata does not say it, because Minari 0.5.3 wrote both kinds.

    >>> import numpy as np
    >>> is_jpeg(np.zeros(4, np.uint8)), is_jpeg(b"\xff\xd8\xff...\xff\xd9")
    (False, True)
    """
    raw = bytes(row)
    return raw.startswith(_START) and raw.rstrip(b"\0").endswith(_END)
