"""Row numbers of one batch: found in a store under its lock, or in arrays, and used for copies afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.views.sources import Source, Window


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
    """Sums of the n-step transitions from the rows, each `[M]`.

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


class RowFinder(Protocol):
    """Rows to present, and how the rows around them are found.

    Attributes:
        rows: int64[M] or int64[B, L]; -1 for padding.
        padded: whether there is padding.
    """

    rows: NDArray[np.int64]
    padded: bool

    def kept(self, every: int) -> NDArray[np.int64]:
        """Returns rows 0, k, 2k, ... of each item or fragment."""
        ...

    def add_up(self, sums: tuple[int, float]) -> Sums:
        """Computes the n-step transitions from the rows, given (n_step, gamma)."""
        ...

    def resolve(
        self, window: Window, offsets: NDArray[np.int64], following: NDArray[np.int64] | None
    ) -> Found:
        """Finds the rows of a window.

        Args:
            window: what to find.
            offsets: int64[W], of the window; they count from the rows that `window.every` keeps.
            following: int64[M], rows from which the offsets count instead.
        """
        ...


@dataclass(slots=True)
class Relabelled:
    """The goals of one batch.

    Attributes:
        goals: int64[R], the row of each run's goal, or -1.
        runs: int64[M], the run of each row, or -1.
        replaced: bool[M], whether a row's goal is replaced.
        acted: for each group of views that show rewards, int64[M, W]: the rows whose rewards are shown, or -1.
        acted_runs: int64[M * W], their runs.
        reached: int64[M * W], the rows after those.
        copies: the goals, then for each group the achieved goals and the infos, by column.
    """

    goals: NDArray[np.int64]
    runs: NDArray[np.int64]
    replaced: NDArray[np.bool_]
    acted: list[NDArray[np.int64]] = field(default_factory=list)
    acted_runs: list[NDArray[np.int64]] = field(default_factory=list)
    reached: list[NDArray[np.int64]] = field(default_factory=list)
    copies: list[dict[str, NDArray[Any]]] = field(default_factory=list)


class Located(NamedTuple):
    """Row numbers of one batch.

    Attributes:
        rows: int64[B], int64[B, L] or int64[M]; -1 for padding.
        padded: whether there is padding.
        kept: by k, rows 0, k, 2k, ... of each item or fragment.
        found: result of each window.
        sums: by (n_step, gamma).
        numbers: metadata columns by name and window.
        relabelled: the replaced goals, if the views have hindsight.
    """

    rows: NDArray[np.int64]
    padded: bool
    kept: dict[int, NDArray[np.int64]]
    found: dict[Window, Found]
    sums: dict[tuple[int, float], Sums]
    numbers: dict[tuple[str, Window], NDArray[np.int64]]
    relabelled: Relabelled | None = None


def shape_of(source: Source, located: Located) -> tuple[int, ...]:
    """Returns the leading axes of a view's array: those of the rows that `every` keeps, then its window."""
    shape = located.kept[source.window.every].shape
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
    return rows, (found.known <= source.fill_threshold).reshape(shape)
