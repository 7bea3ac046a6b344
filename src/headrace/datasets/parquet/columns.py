"""Arrays of an episode as Arrow columns, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Column, Structure
from headrace.datasets.parquet.pyarrow import pa
from headrace.errors import SpecError

Array = np.ndarray[Any, Any]

EPISODE, STEP, FINAL = "episode_id", "step", "is_final"
KEY = "headrace"
# The id of the field FINAL. Damage that loses the description must not make a foreign file of one of ours.
_FIELD_ID = "PARQUET:field_id"
_MARK = "1212498244"


def schema_of(structure: Structure) -> pa.Schema:
    """The columns of a file of such episodes.

    Raises:
        SpecError: a dtype that Arrow does not have, with its path.
    """
    fields = [pa.field(EPISODE, pa.int64()), pa.field(STEP, pa.int64())]
    fields.append(pa.field(FINAL, pa.bool_(), metadata={_FIELD_ID: _MARK}))
    fields += [pa.field(column.path, _type_of(column)) for column in structure.columns.values()]
    return pa.schema(fields)


def is_marked(schema: pa.Schema) -> bool:
    """Whether `schema_of` made it."""
    place = schema.get_field_index(FINAL)
    metadata = (schema.field(place).metadata if place >= 0 else None) or {}
    return bool(metadata.get(_FIELD_ID.encode()) == _MARK.encode())


def to_arrow(column: Column, array: Array, rows: int) -> pa.Array:
    """Returns an array as a column of `rows` rows; rows beyond the end of the array are null.

    Raises:
        SpecError: strings that are no Unicode.
    """
    missing = rows - len(array)
    width = math.prod(column.shape)
    if width == 0:
        return pa.array([False] * len(array) + [None] * missing, pa.bool_())
    values = _values(column, array, missing * width)
    if column.shape == ():
        return values
    mask = np.arange(rows) >= len(array)
    return pa.FixedSizeListArray.from_arrays(
        values, type=_type_of(column), mask=pa.array(mask) if missing else None
    )


def to_numpy(values: Any, path: str) -> Array:
    """The values of an Arrow column without nulls: `[rows]`, or `[rows, ...]` of lists that are all as long.

    Args:
        values: a chunked array, or an array.
        path: its name, for messages.

    Raises:
        SpecError: nulls, lists of different lengths, or values that are no numbers, booleans or strings.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # Too much for one array of Arrow.
            return np.concatenate([to_numpy(chunk, path) for chunk in values.chunks])
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.null_count:
        raise SpecError(f"{path}: expected a value in every row, got {values.null_count} nulls")
    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists_to_numpy(values, path)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers: Array = values.to_numpy(zero_copy_only=False)
        return numbers
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(values.to_pylist(), np.str_)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return np.array(values.to_pylist(), np.bytes_)
    raise SpecError(f"{path}: expected numbers, booleans, strings or lists of these, got {kind}")


def _lists_to_numpy(values: Any, path: str) -> Array:
    if not len(values):
        return np.empty((0, 0))
    lengths = np.unique(values.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise SpecError(
            f"{path}: expected lists of one length, got lengths from {lengths[0]} to {lengths[-1]}"
        )
    inner = to_numpy(values.flatten(), path)
    return inner.reshape(len(values), int(lengths[0]), *inner.shape[1:])


def _values(column: Column, array: Array, further: int) -> pa.Array:
    """The flat values and as many more that nobody reads; nulls where they are rows of their own."""
    if column.is_text:
        strings = array.reshape(-1).tolist() + [None] * further
        try:
            return pa.array(strings, _element_type(column))
        except UnicodeEncodeError as error:
            raise SpecError(f"{column.path}: expected strings of Unicode: {error}") from error
    # A copy: rows wait for their row group, and the source may use its arrays again for the next episode.
    flat = np.array(array, column.dtype.newbyteorder("="), order="C").reshape(-1)
    if not further:
        return pa.array(flat, _element_type(column), from_pandas=False)
    mask = np.arange(len(flat) + further) >= len(flat)
    filled = np.concatenate([flat, np.zeros(further, flat.dtype)])
    return pa.array(filled, _element_type(column), mask=mask, from_pandas=False)


def _type_of(column: Column) -> pa.DataType:
    width = math.prod(column.shape)
    if width == 0:
        return pa.bool_()  # Arrow has no lists of nothing; the rows still have to be counted.
    element = _element_type(column)
    return pa.list_(element, width) if column.shape else element


def _element_type(column: Column) -> pa.DataType:
    dtype = column.dtype
    if dtype.kind == "U":
        return pa.string()
    if dtype.kind == "S":
        return pa.binary()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(np.dtype(f"{dtype.kind}{dtype.itemsize}"))
    raise SpecError(
        f"{column.path}: expected a dtype that Parquet can hold, got {column}; save_npz and save_minari hold it"
    )
