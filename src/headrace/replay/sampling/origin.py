"""Where the elements of a batch come from."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed, ItemNotFound
from headrace.store.layout import LANES
from headrace.store.store import Store
from headrace.tables.items.layout import PADDED, REAL
from headrace.tables.live_table import LiveTable
from headrace.views.explanation import Explanation
from headrace.views.stored.rows import metadata_of
from headrace.views.stored.sampling import SamplingPlan

if TYPE_CHECKING:
    from collections.abc import Callable


class Origin:
    """Table and views of a batch. It does not keep the replay alive.

    Args:
        store: of the rows.
        live: the table.
        plan: of the views.
    """

    def __init__(self, store: Store, live: LiveTable, plan: SamplingPlan) -> None:
        self._store, self._live, self._plan = weakref.ref(store), weakref.ref(live), weakref.ref(plan)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        # A batch in another process has no origin.
        return type(None), ()

    def explain(self, key: int) -> Explanation:
        """Looks up the stored rows of an item, and those that each view shows.

        Raises:
            Closed: the replay is closed.
            ItemNotFound: the item has left the table, so other steps may be in its rows.
        """
        store, live, plan = self._store(), self._live(), self._plan()
        if store is None or live is None or plan is None:
            raise Closed("the replay of this batch is gone, or draws other columns now: draw another batch")
        with store.lock:
            if store.is_closed:
                raise Closed("the replay of this batch is closed")
            rows = _rows_of(store, live, key)
            reader = store.begin_reading()
            try:
                return _explained(store, plan, rows, key)
            finally:
                reader.end()


def _rows_of(store: Store, live: LiveTable, key: int) -> NDArray[np.int64]:
    """Returns the rows of an item: int64[1], or int64[1, L], -1 for padding."""
    found = live.ring.place_of(key)
    if found is None:
        raise ItemNotFound(
            f"item {key} has left table {live.name!r}, so other steps may be in its rows; views of `t` "
            "and `episode_id` show these in every batch"
        )
    row, window = found
    if not live.ring.has_sequences:
        return np.array([row])
    rows = np.empty((1, int(window[REAL] + window[PADDED])), np.int64)
    store.window.rows_of_windows(np.array([row]), window[[REAL]], rows)
    return rows


def _explained(store: Store, plan: SamplingPlan, rows: NDArray[np.int64], key: int) -> Explanation:
    real = rows.reshape(-1)[rows.reshape(-1) >= 0]
    page, in_page = divmod(store.window.place_in_lane(int(real[0])), store.arrays.page_rows)
    return Explanation(
        lane=int(in_page % store.arrays.pages[page, LANES]),
        episode_id=metadata_of(store, "/episode_id", real),
        t=metadata_of(store, "/t", real),
        views=plan.explain(rows),
        key=key,
    )
