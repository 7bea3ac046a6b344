"""pyarrow, or the name of the extra to install, and NumPy arrays from Arrow columns."""

# Rules: datasets G10

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Array
from headrace.errors import SpecError

try:
    import pyarrow as pa
    from pyarrow import ipc, parquet
except ImportError as missing:
    raise ImportError(
        'datasets in Parquet and Arrow need pyarrow: pip install "headrace[parquet]"'
    ) from missing

__all__ = ["ipc", "pa", "parquet", "to_numpy"]

_types = pa.types


def to_numpy(values: Any, path: str, is_nullable: Callable[[Any], bool] = lambda _: False) -> Array:
    """Returns the values of an Arrow column: `[rows]`, or `[rows, ...]` of lists that all have one length.

    Args:
        values: a chunked array, or an array.
        path: its name, for messages.
        is_nullable: tells from an Arrow type of floats whether its nulls become NaN; other nulls are refused.

    Raises:
        SpecError: nulls, lists of different lengths, or values other than numbers, booleans and strings.

    >>> to_numpy(pa.array([[1, 2], [3, 4]]), "actions").tolist()
    [[1, 2], [3, 4]]
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # One array of Arrow cannot hold this number of bytes.
            return np.concatenate([to_numpy(chunk, path, is_nullable) for chunk in values.chunks])
    if _types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if values.null_count and not is_nullable(kind):
        raise SpecError(f"{path}: expected a value in every row, got {values.null_count} nulls")
    if _types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind):
        return _lists_to_numpy(values, path, is_nullable)
    if _types.is_boolean(kind) or _types.is_integer(kind) or _types.is_floating(kind):
        numbers: Array = values.to_numpy(zero_copy_only=False)
        return numbers
    if _types.is_string(kind) or _types.is_large_string(kind):
        return np.array(values.to_pylist(), np.str_)
    if _types.is_binary(kind) or _types.is_large_binary(kind):
        return np.array(values.to_pylist(), np.bytes_)
    raise SpecError(f"{path}: expected numbers, booleans, strings or lists of these, got {kind}")


def _lists_to_numpy(values: Any, path: str, is_nullable: Callable[[Any], bool]) -> Array:
    if not len(values):
        return np.empty((0, 0))
    lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise SpecError(
            f"{path}: expected lists of one length, got lengths from {lengths[0]} to {lengths[-1]}"
        )
    inner = to_numpy(values.flatten(), path, is_nullable)
    return inner.reshape(len(values), int(lengths[0]), *inner.shape[1:])
