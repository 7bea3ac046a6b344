"""Views on stored rows, as presented by `Replay.sample`.

A `SamplingPlan` is made once for a dict of views and a store. `locate`, under the store's lock, follows lanes and links
to row numbers; `present`, outside it, copies.
"""

# Rules: views V16 to V18

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.copier import Copier
from headrace.store.gather import Pool
from headrace.store.store import Store
from headrace.views.columns import Columns
from headrace.views.explanation import Shown
from headrace.views.hindsight import RelabelledView, one_rule
from headrace.views.located import Located
from headrace.views.plan import Plan
from headrace.views.returns import Returns
from headrace.views.sources import Source
from headrace.views.stored.ahead import Ahead
from headrace.views.stored.fused import fused_views
from headrace.views.stored.relabelling import Relabelling
from headrace.views.stored.rows import StoredRows, metadata_of, shown_rows
from headrace.views.view import View, check_views


class SamplingPlan:
    """Plan for presenting a dict of views, or every column as it is, from rows of a store.

    Attributes:
        fused: the plan as tables for one kernel, if the views are simple enough.
        is_copied_later: whether data are copied after the lock is released, so that a guard is needed.
        every: names and k of the views, and their masks, that present only rows 0, k, 2k, ... of an item.
        final_columns: the columns with which it was planned.
        origins: origins of batches, by table; kept for the sampler.
        ahead: look-ahead of the views.

    Args:
        store: of the rows.
        views: maps names to views; None presents the signature's own tree.
        final_columns: columns for which final rows were given a value.
        pool: of the arrays of large batches; None makes one.

    Raises:
        SpecError: an unknown source, a space that contradicts the column, a fill that the dtype cannot hold.
        ValueError: views of several hindsights, or a view that stored rows cannot show.
    """

    def __init__(
        self,
        store: Store,
        views: Mapping[str, View] | None,
        final_columns: frozenset[str],
        pool: Pool | None = None,
    ) -> None:
        self._store = store
        self.final_columns = final_columns
        self.origins: dict[Any, Any] = {}
        names = _shown(store, views)
        # None: the columns are the batch; a tree is only put together where there is one.
        self._unflatten = store.signature.unflatten if views is None and not store.signature.is_flat else None
        columns = Columns.of_store(store.signature, final_columns)
        self._plan = Plan(columns, names)
        self._returns = {sums: Returns(store, *sums) for sums in self._plan.sums}
        self._pool = pool or Pool()
        self._copier = Copier(store, self._pool, self._plan.copies.columns)
        self.every = tuple(
            (name, source.window.every)
            for source in self._plan.sources
            if source.window.every > 1
            for name in ((source.name, f"{source.name}_mask") if source.view.mask else (source.name,))
        )
        self.ahead = Ahead.of(names.values())
        rule = one_rule(names)
        self._relabelling = (
            None if rule is None else Relabelling(store, self._pool, rule, self._plan.sources, columns)
        )
        self._relabelled = [name for name, view in names.items() if isinstance(view, RelabelledView)]
        self.fused = None if rule is not None else fused_views(store, self._plan.sources, self._unflatten)
        self.is_copied_later = self.fused is None or self.fused.has_wide

    # ---- under the lock --------------------------------------------------------------------------------------------

    def locate(self, rows: NDArray[np.int64], *, padded: bool, random: np.random.Generator) -> Located:
        """Finds every row that the views need. The store's lock must be held, and a reading guard open.

        Args:
            rows: int64[B] or int64[B, L], -1 for padding.
            padded: whether there is padding.
            random: draws hindsight goals; ignored without hindsight.
        """
        located = self._plan.locate(StoredRows(self._store, self._returns, rows, padded))
        for column, source in self._plan.metadata:
            wanted = rows if source.is_plain else located.found[source.window].rows
            located.numbers[column, source.window] = metadata_of(self._store, column, wanted.reshape(-1))
        if self._relabelling is not None:
            return located._replace(relabelled=self._relabelling.locate(rows, located, random))
        return located

    # ---- outside the lock ------------------------------------------------------------------------------------------

    def present(self, located: Located) -> Any:
        """Returns the tree of the batch: copies `[B, ...]` or `[B, L, ...]`, with a view's window axis after those.

        A reading guard must be open.
        """
        out = self._plan.present(located, self._copier.copy)
        if self._relabelling is not None:
            assert located.relabelled is not None
            self._relabelling.present(located, located.relabelled, out)
            for name in self._relabelled:
                out[name] = located.relabelled.replaced.reshape(located.rows.shape).copy()
        self._plan.build_trees(out)
        return out if self._unflatten is None else self._unflatten(out)

    # ---- explaining ------------------------------------------------------------------------------------------------

    def explain(self, rows: NDArray[np.int64]) -> dict[str, Shown]:
        """Returns the rows that the views show of some rows, goals as they are stored. The store's lock must be held.

        Args:
            rows: int64[1] or int64[1, L], of one item; -1 for padding.
        """
        finder = StoredRows(self._store, self._returns, rows, padded=bool((rows < 0).any()))
        located = self._plan.locate(finder)
        return {source.name: self._explain(source, located) for source in self._plan.sources}

    def _explain(self, source: Source, located: Located) -> Shown:
        shown = shown_rows(source, located, self._store.window)[0]
        t = np.full(shown.shape, -1)
        t[shown >= 0] = metadata_of(self._store, "/t", shown[shown >= 0])
        return Shown(tuple(column.lstrip("/") for column in source.columns.values()), shown, t)

    def finish(self, located: Located, data: Any) -> None:
        """Computes the rewards for hindsight goals with the user's function. Needs no guard."""
        if self._relabelling is not None:
            assert located.relabelled is not None
            self._relabelling.finish(located.relabelled, data)


def _shown(store: Store, views: Mapping[str, View] | None) -> dict[str, View]:
    """Returns the views of a training batch."""
    # Rules: views V16
    if views is None:
        return {name: View(name) for name in store.signature.columns}
    check_views(views)
    return {name: view for name, view in views.items() if view.used_for_training}
