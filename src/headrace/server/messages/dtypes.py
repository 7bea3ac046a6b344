"""The dtypes of arrays in messages: from a fixed list, so that no text of a peer is interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = {np.dtype(kind).newbyteorder("<").str for kind in "?bBhHiIlLqQefdgFDG"}
_DTYPES = {name: np.dtype(name) for name in _NAMES}


def dtype_of(name: str) -> np.dtype[Any]:
    """Returns the dtype of a name in a message.

    Raises:
        ValueError: it is not little-endian, or not of a numeric or boolean kind.

    >>> dtype_of("<f4"), dtype_of("|b1")
    (dtype('float32'), dtype('bool'))
    """
    found = _DTYPES.get(name)
    if found is None:
        raise ValueError(
            f"dtype: expected a numeric or boolean one in little-endian order, such as '<f4', got {name!r:.40}"
        )
    return found
