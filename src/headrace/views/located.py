"""Row numbers of one batch, found under the store's lock and used for copies outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.views.sources import Source, Window

if TYPE_CHECKING:
    from headrace.views.relabelling import Relabelled


class Found(NamedTuple):
    """Rows found for one window of offsets.

    Attributes:
        rows: int64[M, W].
        known: uint8[M, W] (`store.window`).
        missing: number of entries that are not KNOWN.
    """

    rows: NDArray[np.int64]
    known: NDArray[np.uint8]
    missing: int


class Sums(NamedTuple):
    """Results of `transition.add_up` for the n-step transitions from the rows, each `[M]`.

    Attributes:
        reward, discount: floating; the return, and the factor of its bootstrap value.
        n: int64, the number of transitions summed.
        last: int64, the row of the last of them, or -1.
        following: int64, the row of the next observation.
        missing: number of entries -1 in `last`.
    """

    reward: NDArray[np.floating]
    discount: NDArray[np.floating]
    n: NDArray[np.int64]
    last: NDArray[np.int64]
    following: NDArray[np.int64]
    missing: int


class Located(NamedTuple):
    """Row numbers of one batch.

    Attributes:
        rows: int64[B] or int64[B, L]; -1 for padding.
        padded: whether there is padding.
        found: result of each window.
        sums: by (n_step, gamma).
        numbers: metadata columns by name and window.
        relabelled: the replaced goals, if the views have hindsight.
    """

    rows: NDArray[np.int64]
    padded: bool
    found: dict[Window, Found]
    sums: dict[tuple[int, float], Sums]
    numbers: dict[tuple[str, Window], NDArray[np.int64]]
    relabelled: Relabelled | None = None


def shape_of(source: Source, located: Located) -> tuple[int, ...]:
    """Returns the leading axes of a view's array: those of the batch, reduced by `every`, then its window."""
    shape = located.rows.shape
    if source.window.every > 1 and len(shape) > 1:
        shape = (*shape[:-1], -(-shape[-1] // source.window.every))
    return (*shape, len(source.window.offsets)) if source.view.has_window else shape


def places_of(source: Source, located: Located) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """Returns the rows that a view presents, and a mask of the places with its fill (None: no place).

    All rows can be read, except -1, which is padding.
    """
    if source.is_plain:
        return located.rows, (located.rows < 0 if located.padded else None)
    found = located.found[source.window]
    shape = shape_of(source, located)
    rows = found.rows.reshape(shape)
    if not found.missing:
        return rows, None
    # EDGE places hold the nearest value already; other fills replace it.
    return rows, (found.known <= source.covers).reshape(shape)
