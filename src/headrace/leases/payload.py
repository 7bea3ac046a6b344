"""The columns of a commit behind the message, for a peer that cannot map the arena.

First the columns of the steps, one after the other in the order of the signature, then the columns of the final rows in
the same way: raw little-endian values, row by row.
"""

from __future__ import annotations

import math

import numpy as np

from headrace.leases.checking import LeaseError
from headrace.leases.messages import ROWS, Commit
from headrace.leases.page_views import Columns
from headrace.spec import Signature


def packed_columns(signature: Signature, columns: Columns, finals: Columns) -> bytes:
    """Returns the payload of a commit.

    Args:
        signature: of one step.
        columns: each column of the steps, `[steps, lanes, ...]`.
        finals: each column of the final rows, `[m, ...]`.
    """
    return b"".join(
        np.ascontiguousarray(given[name]).astype(spec.dtype.newbyteorder("<"), copy=False).tobytes()
        for given in (columns, finals)
        for name, spec in signature.columns.items()
    )


def unpacked_columns(
    payload: bytes, commit: Commit, signature: Signature, lanes: int
) -> tuple[Columns, Columns]:
    """Returns the columns of the steps, `[steps, lanes, ...]`, and those of the final rows, `[m, ...]`.

    Raises:
        LeaseError: the number of steps is negative, or the payload is not as long as the commit and the signature say.
    """
    if commit.steps < 0:
        raise LeaseError(f"steps: expected at least 0, got {commit.steps}")
    shapes = ((commit.steps, lanes), (len(commit.final_rows) // ROWS.itemsize,))
    expected = sum(math.prod(shape) for shape in shapes) * signature.nbytes
    if len(payload) != expected:
        raise LeaseError(f"payload: expected {expected} bytes, got {len(payload)}")
    found: list[Columns] = []
    offset = 0
    for shape in shapes:
        columns = {}
        for name, spec in signature.columns.items():
            count = math.prod(shape) * math.prod(spec.shape)
            values = np.frombuffer(payload, spec.dtype.newbyteorder("<"), count, offset)
            columns[name] = values.reshape(*shape, *spec.shape)
            offset += values.nbytes
        found.append(columns)
    return found[0], found[1]
