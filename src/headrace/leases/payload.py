"""The columns of a commit behind the message, for a peer that cannot map the arena.

First the columns of the steps, one after the other in the order of the signature, then the columns of the final rows in
the same way, and then, if the commit says so, the observed columns after the last step: raw little-endian values, row
by row.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.leases.checking import LeaseError
from headrace.leases.frames import Payload
from headrace.leases.messages import ROWS, Commit
from headrace.leases.page_views import Columns
from headrace.spec import Signature


class CommitColumns(NamedTuple):
    """The columns of a commit.

    Attributes:
        columns: each column of the steps, `[steps, lanes, ...]`.
        finals: each column of the final rows, `[m, ...]`.
        following: each observed column after the last step, `[lanes, ...]`; None: they come with the next commit.
    """

    columns: Columns
    finals: Columns
    following: Columns | None = None


def packed_columns(
    signature: Signature, columns: Columns, finals: Columns, following: Columns | None = None
) -> memoryview:
    """Returns the payload of a commit; see `CommitColumns`.

    Args:
        signature: of one step.
        columns: each column of the steps, `[steps, lanes, ...]`.
        finals: each column of the final rows, `[m, ...]`.
        following: each observed column after the last step, `[lanes, ...]`; None: left out.
    """
    parts = [
        (given[name], spec.dtype.newbyteorder("<"))
        for given in (columns, finals, following or {})
        for name, spec in signature.columns.items()
        if name in given
    ]
    payload = np.empty(sum(column.size * dtype.itemsize for column, dtype in parts), np.uint8)
    begin = 0
    for column, dtype in parts:
        end = begin + column.size * dtype.itemsize
        payload[begin:end].view(dtype).reshape(column.shape)[...] = column
        begin = end
    return payload.data


def unpacked_columns(
    payload: Payload, commit: Commit, signature: Signature, lanes: int, observed: Collection[str] = ()
) -> CommitColumns:
    """Returns the columns of a commit.

    Args:
        payload: behind it.
        commit: as it was received.
        signature: of one step.
        lanes: of the writer.
        observed: names of the columns that an observation has.

    Raises:
        LeaseError: the number of steps is negative, or the payload is not as long as the commit and the signature say.
    """
    if commit.steps < 0:
        raise LeaseError(f"steps: expected at least 0, got {commit.steps}")
    names = list(signature.columns)
    parts: list[tuple[tuple[int, ...], list[str]]] = [
        ((commit.steps, lanes), names),
        ((len(commit.final_rows) // ROWS.itemsize,), names),
    ]
    if commit.shows_next:
        parts.append(((lanes,), [name for name in names if name in observed]))
    expected = sum(math.prod(shape) * _row_nbytes(signature, names) for shape, names in parts)
    if len(payload) != expected:
        raise LeaseError(f"payload: expected {expected} bytes, got {len(payload)}")
    found: list[Columns] = []
    offset = 0
    for shape, names in parts:
        columns: dict[str, NDArray[Any]] = {}
        for name in names:
            spec = signature.columns[name]
            count = math.prod(shape) * math.prod(spec.shape)
            values = np.frombuffer(payload, spec.dtype.newbyteorder("<"), count, offset)
            columns[name] = values.reshape(*shape, *spec.shape)
            offset += values.nbytes
        found.append(columns)
    return CommitColumns(*found)


def _row_nbytes(signature: Signature, names: Collection[str]) -> int:
    return sum(
        math.prod(signature.columns[name].shape) * signature.columns[name].dtype.itemsize for name in names
    )
