"""Where the rows of one batch are, found under the store's lock and copied outside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.views.sources import Source, Window

if TYPE_CHECKING:
    from headrace.views.relabelling import Relabelled


class Found(NamedTuple):
    """Where one window of offsets leads.

    Attributes:
        rows: int64[M, W].
        known: uint8[M, W] (`store.window`).
        missing: how many places are not KNOWN.
    """

    rows: NDArray[np.int64]
    known: NDArray[np.uint8]
    missing: int


class Sums(NamedTuple):
    """What `transition.add_up` tells of the n-step transitions from the rows, each `[M]`.

    Attributes:
        reward, discount: floating; the return and what its bootstrap value is multiplied with.
        n: int64, how many transitions were put together.
        last: int64, the row of the last of them, or -1.
        following: int64, the row of the next observation.
        missing: how many of `last` are -1.
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
        rows: int64[B] or int64[B, L]; -1 where a row is invented.
        padded: whether some are.
        found: what each window found.
        sums: by (n_step, gamma).
        numbers: metadata columns by name and window.
        relabelled: the goals of hindsight, where the views have one.
    """

    rows: NDArray[np.int64]
    padded: bool
    found: dict[Window, Found]
    sums: dict[tuple[int, float], Sums]
    numbers: dict[tuple[str, Window], NDArray[np.int64]]
    relabelled: Relabelled | None = None


def shape_of(source: Source, located: Located) -> tuple[int, ...]:
    """The leading axes of what a view presents: the batch's, thinned out by `every`, then its window."""
    shape = located.rows.shape
    if source.window.every > 1 and len(shape) > 1:
        shape = (*shape[:-1], -(-shape[-1] // source.window.every))
    return (*shape, len(source.window.offsets)) if source.view.has_window else shape


def places_of(source: Source, located: Located) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
    """The rows that a view presents, and where its fill stands instead of them (None: nowhere).

    The rows can be read everywhere, but for -1, which stands for an invented row.
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
