"""Views that one kernel can present, as tables for it.

Most batches are some hundred rows. Finding and copying small rows takes less time than the Python calls in between. So
if every view shows one column at offsets of each row, one call does all of it (`replay.sampling.fused`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.store.records import record_layout
from headrace.store.store import Store
from headrace.views.sources import Source, Window
from headrace.views.transition import TransitionView

THE_ROWS, LAST = -1, -2


@dataclass(frozen=True)
class FusedView:
    """One column of a batch.

    Attributes:
        name: of the view.
        column, spec: the column shown, and its spec.
        window: index in `FusedViews.windows`; or THE_ROWS themselves, or the LAST transitions of a sum.
        has_window: whether it has an axis for the offsets of its window.
        fill_threshold: values known no better than this are replaced by the fill.
        fill: one row of the fill.
        is_wide: whether the column is a separate array and not a field of the records.
    """

    name: str
    column: str
    spec: ArraySpec
    window: int
    has_window: bool
    fill_threshold: int
    fill: NDArray[Any]
    is_wide: bool


@dataclass(frozen=True)
class FusedViews:
    """All columns of a batch, and the windows that they look through.

    Attributes:
        names: of all views, in their order.
        views: those that are copies of columns.
        windows: by index, windows of records first.
        n_step, gamma: of the n-step sums; n_step is 0 without sums.
        sums: maps the name of a view to its part of the sums: "reward", "discount" or "n".
        unflatten: builds the tree of the batch; None if the batch is a dict of columns.
    """

    names: list[str]
    views: list[FusedView]
    windows: list[Window]
    n_step: int
    gamma: float
    sums: dict[str, str]
    unflatten: Callable[[dict[str, Any]], Any] | None

    @property
    def has_wide(self) -> bool:
        """Whether columns are shown that are not fields of the records."""
        return any(view.is_wide for view in self.views)


def fused_views(
    store: Store, sources: Sequence[Source], unflatten: Callable[[dict[str, Any]], Any] | None
) -> FusedViews | None:
    """Returns the tables of these views, or None if one of them is more than a column at offsets."""
    transitions = [source.view for source in sources if isinstance(source.view, TransitionView)]
    kinds = {(view.n_step, view.gamma) for view in transitions}
    if len(kinds) > 1 or not all(_is_fusable(store, source) for source in sources):
        return None
    sums = {source.name: source.sum_part for source in sources if source.sum_part}
    if len(set(sums.values())) < len(sums):
        return None  # Each array of a batch is its own (replay B4).
    n_step, gamma = next(iter(kinds), (0, 0.0))
    small = record_layout(store.signature).offsets.keys()
    copied = [source for source in sources if not source.sum_part]
    # Windows of records first.
    looking = [source for source in copied if not source.is_plain and not source.is_last]
    looking.sort(key=lambda source: source.columns[""] not in small)
    windows = list(dict.fromkeys(source.window for source in looking))
    return FusedViews(
        names=[source.name for source in sources],
        views=[
            _fused_view(store, source, windows, is_wide=source.columns[""] not in small) for source in copied
        ],
        windows=windows,
        n_step=n_step,
        gamma=gamma,
        sums=sums,
        unflatten=unflatten,
    )


def _fused_view(store: Store, source: Source, windows: Sequence[Window], *, is_wide: bool) -> FusedView:
    column = source.columns[""]
    if source.is_last:
        window = LAST
    else:
        window = THE_ROWS if source.is_plain else windows.index(source.window)
    return FusedView(
        name=source.name,
        column=column,
        spec=store.signature.columns[column],
        window=window,
        has_window=source.view.has_window,
        fill_threshold=source.fill_threshold,
        fill=source.fills[""],
        is_wide=is_wide,
    )


def _is_fusable(store: Store, source: Source) -> bool:
    one_column = source.build is None and source.columns.get("") in store.signature.columns
    return one_column and not source.view.mask and source.window.every == 1
