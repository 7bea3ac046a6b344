"""Views that one kernel can present, as tables for it.

Most batches are some hundred small rows: looking for them and copying them takes less time than the calls of Python
between. Where every view shows columns of records at offsets of each row, a batch is one call (`replay.quick`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.store.records import record_layout
from headrace.store.store import Store
from headrace.views.sources import Source, Window
from headrace.views.transition import TransitionView

THE_ROWS, LAST = -1, -2


@dataclass(frozen=True)
class QuickView:
    """One column of a batch.

    Attributes:
        name: of the view.
        column, spec: what it shows.
        window: its number among `QuickViews.windows`; or THE_ROWS themselves, or the LAST transitions of a sum.
        has_window: whether it has an axis for the offsets of its window.
        covers: its fill stands where no more is known than this.
        fill: a row's worth of it.
    """

    name: str
    column: str
    spec: ArraySpec
    window: int
    has_window: bool
    covers: int
    fill: NDArray[Any]


@dataclass(frozen=True)
class QuickViews:
    """All columns of a batch, and the windows that they look through.

    Attributes:
        names: of all views, in their order.
        views: those that are copies of columns.
        windows: by number.
        n_step, gamma: of the transitions that are summed up; n_step is 0 without.
        sums: name of a view to its part of the sums: "reward", "discount" or "n".
    """

    names: list[str]
    views: list[QuickView]
    windows: list[Window]
    n_step: int
    gamma: float
    sums: dict[str, str]


def quick_views(store: Store, sources: Sequence[Source]) -> QuickViews | None:
    """The tables of these views, or None where one of them is more than columns of records at offsets."""
    transitions = [source.view for source in sources if isinstance(source.view, TransitionView)]
    kinds = {(view.n_step, view.gamma) for view in transitions}
    if len(kinds) > 1 or not all(_is_quick(store, source) for source in sources):
        return None
    if kinds and not _sums_are_quick(store):
        return None
    n_step, gamma = next(iter(kinds), (0, 0.0))
    found = QuickViews([source.name for source in sources], [], [], n_step, gamma, {})
    for source in sources:
        _add(store, found, source)
    return found


def _add(store: Store, found: QuickViews, source: Source) -> None:
    view, column = source.view, source.columns[""]
    if isinstance(view, TransitionView) and view.part in ("reward", "discount", "n"):
        found.sums[source.name] = view.part
        return
    if isinstance(view, TransitionView) and view.part == "last":
        window = LAST
    elif source.is_plain:
        window = THE_ROWS
    else:
        if source.window not in found.windows:
            found.windows.append(source.window)
        window = found.windows.index(source.window)
    spec, fill = store.signature.columns[column], source.fills[""]
    found.views.append(QuickView(source.name, column, spec, window, view.has_window, source.covers, fill))


def _is_quick(store: Store, source: Source) -> bool:
    one_column = source.build is None and source.columns.get("") in record_layout(store.signature).offsets
    return one_column and not source.view.mask and source.window.every == 1


def _sums_are_quick(store: Store) -> bool:
    offsets, specs = record_layout(store.signature).offsets, store.signature.columns
    if not {"reward", "terminated"} <= offsets.keys():
        return False
    return specs["reward"].dtype in (np.float32, np.float64) and specs["terminated"].dtype == np.bool_
