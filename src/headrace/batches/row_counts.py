"""Conversion of columns to arrays, and the check that all have the rows that a batch needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace.arrays import as_array
from headrace.batches.sequences import Lengths
from headrace.checks import check_mapping
from headrace.errors import SpecError
from headrace.trees import build, compile_tree, leaves

STATE_IN = "state_in_"


def as_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a dict of columns; see `as_column`.

    Raises:
        SpecError: a leaf that is not an array of numbers, or has no axis; a name that is not a string.
        TypeError: not a mapping.
    """
    check_mapping("columns", columns, "arrays")
    return {name: as_column(name, tree) for name, tree in columns.items()}


def as_column(name: str, tree: Any) -> Any:
    """Returns a column with arrays as its leaves; a list is an array, and arrays of other libraries are kept.

    Raises:
        SpecError: a leaf that is not an array of numbers, or has no axis; a name that is not a string.
    """
    if not isinstance(name, str):
        raise SpecError(f"columns: expected strings as names, got {name!r}")
    if type(tree) is np.ndarray:
        return _leaf(name, tree)
    node = compile_tree(tree, lambda value: isinstance(value, list) or _is_array(value), name)
    found = {leaf.path: _leaf(leaf.path, leaf.value) for leaf in leaves(node)}
    return build(node, found)


def as_lengths(lengths: Any) -> Lengths:
    """Returns lengths of sequences as int64[S].

    Raises:
        SpecError: anything but one axis of integers >= 1.
    """
    array = as_array(lengths, "seq_lens")
    is_right = array.dtype.kind in "iu" or not array.size
    if array.ndim != 1 or not is_right or (array < 1).any():
        raise SpecError(f"seq_lens: expected integers >= 1 of shape [S], got {array!r}")
    return array.astype(np.int64)


def named_leaves(columns: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the path of each array of some columns, and the array."""
    for name, tree in columns.items():
        if type(tree) is np.ndarray:
            yield name, tree
            continue
        for leaf in leaves(compile_tree(tree, _is_array, name)):
            yield leaf.path, leaf.value


def leaf_rows(columns: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of rows of each leaf by its path."""
    return {path: leaf.shape[0] for path, leaf in named_leaves(columns)}


def rows_of(columns: Mapping[str, Any]) -> int:
    """Returns the number of rows of columns that all have as many."""
    return next((leaf.shape[0] for _, leaf in named_leaves(columns)), 0)


def check_equal_rows(columns: Mapping[str, Any]) -> None:
    """Checks columns without sequences: all have as many rows.

    Raises:
        SpecError: the message has the leaves that differ from most others.
    """
    rows = leaf_rows(columns)
    if len(set(rows.values())) > 1:
        usual = Counter(rows.values()).most_common(1)[0][0]
        _refuse(
            {path: count for path, count in rows.items() if count != usual},
            f"{usual} rows, as the others have",
        )


def one_row_a_sequence(columns: Mapping[str, Any], rows: int, sequences: int) -> frozenset[str]:
    """Checks columns with sequences, and returns the names of those with one row a sequence.

    Args:
        columns: name to tree of arrays.
        rows: rows of the other columns.
        sequences: number of sequences.

    Raises:
        SpecError: a leaf has another number of rows; the message has the leaves.
    """
    found: set[str] = set()
    ragged: dict[str, int] = {}
    for name, tree in columns.items():
        counts = leaf_rows({name: tree})
        if name.startswith(STATE_IN) or (rows != sequences and set(counts.values()) == {sequences}):
            found.add(name)
            wanted = sequences
        else:
            wanted = rows
        ragged |= {path: count for path, count in counts.items() if count != wanted}
    if ragged:
        _refuse(
            ragged,
            f"{rows} rows; state_in_* and views with `every` have one for each of {sequences} sequences",
        )
    return frozenset(found)


def _refuse(ragged: Mapping[str, int], expected: str) -> None:
    told = ", ".join(f"{path} with {count}" for path, count in ragged.items())
    raise SpecError(f"{', '.join(ragged)}: expected {expected}; got {told}")


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (hasattr(value, "shape") and hasattr(value, "dtype"))


def _leaf(path: str, value: Any) -> Any:
    array = value if _is_array(value) else as_array(value, path)
    if array.shape == ():
        raise SpecError(f"{path}: expected an array with a row for each step, got one value: {value!r:.80}")
    return array
