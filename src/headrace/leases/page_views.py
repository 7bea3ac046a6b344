"""Views of the rows of leased pages, step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from numpy.typing import NDArray

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""Maps names of columns to their arrays."""

# Vector steps whose views are kept for the next time that their page is filled.
_MOST_VIEWS = 1 << 14


class PageView(NamedTuple):
    """A page as its writer sees it.

    Attributes:
        rows: the observations of each step: columns `[lanes, ...]`.
        others: the other columns, `[steps, lanes, ...]`.
    """

    rows: list[Columns]
    others: dict[str, NDArray[Any]]


class PageViews:
    """Makes the views of a page once: a loop asks for a row at every step, and pages come again.

    Args:
        columns: each column's array over the whole arena, `dtype[rows, ...]`.
        observed: names of the columns that an observation has.
        page_rows: rows of a page.
        lanes: number of lanes.
    """

    def __init__(self, columns: Columns, observed: Iterable[str], page_rows: int, lanes: int) -> None:
        self._columns = columns
        self._observed = frozenset(observed)
        self._page_rows = page_rows
        self._lanes = lanes
        self._steps = page_rows // lanes
        self._views: dict[int, PageView] = {}

    def of(self, page: int) -> PageView:
        """Returns the view of a page."""
        if page not in self._views:
            while (len(self._views) + 1) * self._steps > _MOST_VIEWS and len(self._views) > 1:
                del self._views[next(iter(self._views))]
            self._views[page] = self._new(page)
        return self._views[page]

    def _new(self, page: int) -> PageView:
        first, steps = page * self._page_rows, self._steps
        blocks = {
            name: column[first : first + steps * self._lanes].reshape(steps, self._lanes, *column.shape[1:])
            for name, column in self._columns.items()
        }
        observed = [(name, block) for name, block in blocks.items() if name in self._observed]
        rows: list[Columns] = [{name: block[step] for name, block in observed} for step in range(steps)]
        others = {name: block for name, block in blocks.items() if name not in self._observed}
        return PageView(rows, others)
