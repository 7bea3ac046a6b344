"""Estimate of a replay's memory."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.spec import Signature
from headrace.store.records import stored_nbytes
from headrace.tables.description.selectors import Selector
from headrace.tables.description.table import Table


def estimate_bytes(signature: Signature, steps: int, tables: Iterable[Table] = ()) -> int:
    """Returns the bytes that a replay of `steps` steps takes, with one item a step in each table.

    >>> import numpy as np
    >>> estimate_bytes(Signature.like({"frame": np.zeros((84, 84), np.uint8)}), 1_000_000) // 1_000_000
    7060
    """
    per_row = stored_nbytes(signature) + 4
    # The memory of a custom selector is unknown.
    samplers = [table.sampler for table in tables]
    per_item = sum(
        16 + (8 + 8.6 if isinstance(sampler, Selector) and sampler.reads_priorities else 0)
        for sampler in samplers
    )
    return int(steps * (per_row + per_item))
