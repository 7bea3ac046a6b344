"""Arrow columns of Minari's data as trees of arrays."""

# Rules: datasets K11

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces

from headrace.datasets.minari.arrow.pyarrow import pa
from headrace.datasets.minari.jpeg import decode_jpeg_rows, is_jpeg
from headrace.errors import SpecError
from headrace.trees import join

Array = np.ndarray[Any, Any]

_SHAPE = b"shape"
_types = pa.types


def arrow_tree(column: Any, space: Space[Any] | None, path: str) -> Any:
    """The observations or actions of a column.

    Args:
        column: an arrow array with a row for each step.
        space: what its rows are; None takes them as they lie.
        path: for errors.

    Raises:
        SpecError: rows that are not of the space; with the path.
    """
    if not _types.is_struct(column.type):
        if isinstance(space, spaces.Dict | spaces.Tuple):
            raise SpecError(f"{path}: expected the parts of {space}, got {column.type}")
        return arrow_leaf(column, path, *_shapes_of(space))
    found = {field.name: column.field(index) for index, field in enumerate(column.type)}
    if isinstance(space, spaces.Tuple):
        return tuple(
            arrow_tree(_part(found, str(index), path), each, join(path, str(index)))
            for index, each in enumerate(space.spaces)
        )
    if isinstance(space, spaces.Dict):
        return {
            key: arrow_tree(_part(found, key, path), each, join(path, key))
            for key, each in space.spaces.items()
        }
    if space is not None:
        raise SpecError(f"{path}: expected one array for {space}, got {column.type}")
    return {key: arrow_tree(each, None, join(path, key)) for key, each in found.items()}


def arrow_infos(column: Any, path: str) -> dict[str, Any]:
    """The infos of a column of structs; what is None in every row is absent.

    Raises:
        SpecError: rows that make no array; with the path.
    """
    infos: dict[str, Any] = {}
    for index, field in enumerate(column.type):
        values, name = column.field(index), join(path, field.name)
        if _types.is_struct(field.type):
            infos[field.name] = arrow_infos(values, name)
        elif not _types.is_null(field.type):
            note = (field.metadata or {}).get(_SHAPE)
            infos[field.name] = arrow_leaf(values, name, *_noted_shapes(note))
    return infos


def arrow_leaf(column: Any, path: str, *shapes: tuple[int, ...]) -> Array:
    """One array: numbers, strings, or lists of numbers.

    Args:
        column: an arrow array without structs.
        path: for errors.
        shapes: what shapes a row may have, the first that fits; without any it is the shape that the lists have.

    Raises:
        SpecError: missing values, lists of several lengths, other shapes, images that are none.
    """
    try:
        array = _array(column, shapes)
    except ValueError as error:
        raise SpecError(f"{path}: {error}") from error
    if not shapes:
        return array
    size = int(np.prod(array.shape[1:]))
    for shape in shapes:
        if np.prod(shape, dtype=np.int64) == size:
            return array.reshape(len(array), *shape)
    raise SpecError(f"{path}: expected rows of the shape {list(shapes[0])}, got {size} values")


def _array(column: Any, shapes: tuple[tuple[int, ...], ...]) -> Array:
    kind = column.type
    if column.null_count and not _types.is_floating(kind):
        raise ValueError(f"expected a value in every row, got {column.null_count} without one")
    if _types.is_fixed_size_list(kind) or _types.is_list(kind) or _types.is_large_list(kind):
        return _from_lists(column)
    if _types.is_string(kind) or _types.is_large_string(kind):
        return np.array(column.to_pylist(), "U")
    if _types.is_binary(kind) or _types.is_large_binary(kind):
        rows = column.to_pylist()
        if rows and is_jpeg(rows[0]):
            return decode_jpeg_rows(rows, shapes[0] if shapes else None)
        return np.array([row.decode() for row in rows], "U")
    if _types.is_boolean(kind) or _types.is_integer(kind) or _types.is_floating(kind):
        return np.array(column.to_numpy(zero_copy_only=False))
    raise ValueError(f"expected numbers, booleans or strings, got {kind}")


def _from_lists(column: Any) -> Array:
    if len(column) == 0:
        return np.empty((0, 0))
    lengths = set(pa.compute.list_value_length(column).to_pylist())
    if len(lengths) > 1:
        raise ValueError(f"expected lists of one length, got lengths {sorted(lengths)}")
    values = _array(column.flatten(), ())
    return values.reshape(len(column), lengths.pop(), *values.shape[1:])


def _shapes_of(space: Space[Any] | None) -> list[tuple[int, ...]]:
    return [] if space is None or isinstance(space, spaces.Text) or space.shape is None else [space.shape]


def _noted_shapes(note: bytes | None) -> list[tuple[int, ...]]:
    """What the note beside a column says of its rows: "2,3", or in 0.5.0 a byte for each axis; "" is a scalar."""
    if note is None:
        return []
    as_bytes = tuple(note)
    try:
        return [tuple(int(size) for size in note.decode().split(",")) if note else (), as_bytes]
    except ValueError:
        return [as_bytes]


def _part(found: dict[str, Any], key: str, path: str) -> Any:
    if key not in found:
        raise SpecError(f"{join(path, key)}: missing; there are {', '.join(found) or 'no parts'}")
    return found[key]
