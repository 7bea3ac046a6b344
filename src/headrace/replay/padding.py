"""Values of padded rows in tables where zeros would be wrong."""

# Rules: trajectories M2

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.spec import Signature, check_array
from headrace.views.sources import leaves_at
from headrace.views.view import View


def read_padding(signature: Signature, values: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Returns the values of one padded row, checked.

    Raises:
        SpecError: no such column, or a value that it cannot hold.
    """
    specs = signature.columns
    unknown = [name for name in values if name not in specs]
    if unknown:
        raise SpecError(f"padding: expected some of the columns {', '.join(specs)}, got {', '.join(unknown)}")
    return {name: check_array(value, specs[name], name) for name, value in values.items()}


def plain_paddings(paddings: Mapping[str, Mapping[str, NDArray[Any]]]) -> dict[str, dict[str, Any]]:
    """Returns the records of all tables as plain numbers and lists, for files."""
    return {
        table: {name: value.tolist() for name, value in values.items()} for table, values in paddings.items()
    }


def fill_padding(
    values: Mapping[str, NDArray[Any]],
    signature: Signature,
    views: Mapping[str, View] | None,
    data: Any,
    mask: NDArray[np.bool_],
) -> None:
    """Writes values into the padded rows of a batch.

    Args:
        values: maps columns to the value of one row.
        signature: of the store.
        views: what the batch presents; None for the signature's tree. A view that looks at other rows as well fills
            those by its own rule.
        data: the batch, changed in place.
        mask: bool[B, L], True where a row is real.
    """
    if views is None:
        _fill(values, signature.flatten(data), mask)
        return
    for name, view in views.items():
        if name in data and type(view) is View and view.shift == 0:
            leaves = leaves_at(signature, view.data_col or name, data[name])
            _fill(values, leaves, mask[:, :: view.every])


def _fill(
    values: Mapping[str, NDArray[Any]], arrays: Mapping[str, NDArray[Any]], mask: NDArray[np.bool_]
) -> None:
    for column, array in arrays.items():
        if column in values:
            array[~mask] = values[column]
