"""Views that one kernel can present, as tables for it.

Most batches are some hundred small rows: looking for them and copying them takes less time than the calls of Python
between. Where every view shows columns of records at offsets of each row, a batch is one call (`replay.quick`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from headrace.spec import ArraySpec
from headrace.store.records import record_layout
from headrace.store.store import Store
from headrace.views.sources import METADATA, Source, Window
from headrace.views.transition import TransitionView


@dataclass(frozen=True)
class QuickView:
    """One column of a batch.

    Attributes:
        name: of the view.
        column, spec: what it shows.
        window: its number among `QuickViews.windows`; -1 shows the rows themselves.
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
    """All columns of a batch, and the windows that they look through."""

    views: list[QuickView]
    windows: list[Window]


def quick_views(store: Store, sources: Sequence[Source]) -> QuickViews | None:
    """The tables of these views, or None where one of them is more than columns of records at offsets."""
    layout = record_layout(store.signature)
    windows: list[Window] = []
    views: list[QuickView] = []
    for source in sources:
        column = source.columns.get("", "")
        if not _is_quick(source) or column not in layout.offsets:
            return None
        if not source.is_plain and source.window not in windows:
            windows.append(source.window)
        window = -1 if source.is_plain else windows.index(source.window)
        spec, fill = store.signature.columns[column], source.fills[""]
        views.append(QuickView(source.name, column, spec, window, source.view.has_window, source.covers, fill))
    return QuickViews(views, windows)


def _is_quick(source: Source) -> bool:
    view = source.view
    return not (
        source.build is not None or view.mask or isinstance(view, TransitionView) or source.window.every > 1
    ) and not any(column in METADATA for column in source.columns.values())
