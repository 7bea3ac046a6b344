"""Columns of a Parquet file of episodes."""

from __future__ import annotations

import math

import numpy as np

from headrace.datasets.arrow import pa
from headrace.datasets.exporting.structure import Array, Column, Structure
from headrace.errors import SpecError

EPISODE, STEP, FINAL = "episode_id", "step", "is_final"
KEY = "headrace"
# The id of the field FINAL, by which a file whose header is lost is still known.
_FIELD_ID = "PARQUET:field_id"
_MARK = "1212498244"


def schema_of(structure: Structure) -> pa.Schema:
    """Returns the schema of a file of such episodes.

    Raises:
        SpecError: Arrow does not have a dtype; with the path of its array.
    """
    fields = [pa.field(EPISODE, pa.int64()), pa.field(STEP, pa.int64())]
    fields.append(pa.field(FINAL, pa.bool_(), metadata={_FIELD_ID: _MARK}))
    fields += [pa.field(column.path, _type_of(column)) for column in structure.columns.values()]
    return pa.schema(fields)


def is_marked(schema: pa.Schema) -> bool:
    """Whether `schema_of` made the schema."""
    place = schema.get_field_index(FINAL)
    metadata = (schema.field(place).metadata if place >= 0 else None) or {}
    return bool(metadata.get(_FIELD_ID.encode()) == _MARK.encode())


def to_arrow(column: Column, array: Array, rows: int) -> pa.Array:
    """Returns an array as a column of `rows` rows; rows after the end of the array are null.

    Raises:
        SpecError: strings that UTF-8 cannot hold.
    """
    missing, width = rows - len(array), math.prod(column.shape)
    if not width:
        return pa.array([False] * len(array) + [None] * missing, pa.bool_())
    if column.is_text:
        try:
            values = pa.array(array.reshape(-1).tolist() + [None] * missing * width, _element_type(column))
        except UnicodeEncodeError as error:
            raise SpecError(f"{column.path}: expected strings of Unicode: {error}") from error
    else:
        # A copy, because rows wait for their row group, and the source may use its arrays again.
        flat = np.zeros(rows * width, column.dtype.newbyteorder("="))
        flat[: array.size] = array.reshape(-1)
        nulls = np.arange(len(flat)) >= array.size if missing else None
        values = pa.array(flat, _element_type(column), mask=nulls, from_pandas=False)
    if not column.shape:
        return values
    mask = pa.array(np.arange(rows) >= len(array)) if missing else None
    return pa.FixedSizeListArray.from_arrays(values, type=_type_of(column), mask=mask)


def _type_of(column: Column) -> pa.DataType:
    width = math.prod(column.shape)
    if not width:
        return pa.bool_()  # Arrow has no empty lists of a fixed size; the booleans count the rows.
    element = _element_type(column)
    return pa.list_(element, width) if column.shape else element


def _element_type(column: Column) -> pa.DataType:
    dtype = column.dtype
    if dtype.kind in "US":
        return pa.string() if dtype.kind == "U" else pa.binary()
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return pa.from_numpy_dtype(np.dtype(f"{dtype.kind}{dtype.itemsize}"))
    raise SpecError(
        f"{column.path}: expected a dtype that Parquet can hold, got {column}; save_npz and save_minari hold it"
    )
