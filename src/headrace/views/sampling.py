"""Views on stored rows, as presented by `Replay.sample`.

A `SamplingPlan` is made once for a dict of views and a store. Sampling has two halves: `locate`, under the store's
lock, follows lanes and links to row numbers; `present`, outside it, copies.
"""

# Rules: views V16 to V18

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.gather import Pool
from headrace.store.layout import KNOWN, LANES, STEP_MASK
from headrace.store.store import Store
from headrace.views.ahead import Ahead
from headrace.views.copies import Copies
from headrace.views.fused import fused_views
from headrace.views.hindsight import RelabelledView, one_rule
from headrace.views.located import Found, Located, Sums, places_of, shape_of
from headrace.views.relabelling import Relabelling
from headrace.views.returns import Returns, sum_dtype
from headrace.views.sources import METADATA, Source, Window, check_transition, source_of
from headrace.views.transition import TransitionView
from headrace.views.view import View


class SamplingPlan:
    """Plan for presenting a dict of views, or every column as it is, from rows of a store.

    Attributes:
        fused: the plan as tables for one kernel, if the views are simple enough.
        is_copied_later: whether data are copied after the lock is released, so that a guard is needed.
        every: names and k of the views, and their masks, that present only rows 0, k, 2k, ... of an item.
        given_at_the_end: the columns with which it was planned.
        ahead: look-ahead of the views.

    Args:
        store: of the rows.
        views: maps names to views; None presents the signature's own tree.
        given_at_the_end: columns for which final rows were given a value.

    Raises:
        SpecError: an unknown source, a space that contradicts the column, a fill that the dtype cannot hold.
        ValueError: views of several hindsights.
    """

    def __init__(
        self, store: Store, views: Mapping[str, View] | None, given_at_the_end: frozenset[str]
    ) -> None:
        self._store = store
        self.given_at_the_end = given_at_the_end
        names = {name: View(name) for name in store.signature.columns} if views is None else views
        for name, view in names.items():
            if not isinstance(view, View):
                raise TypeError(f"views: {name!r}: expected a View, got {view!r}")
        names = {name: view for name, view in names.items() if view.used_for_training}
        sources = [
            source_of(store.signature, name, view, given_at_the_end)
            for name, view in names.items()
            if not isinstance(view, RelabelledView)
        ]
        # None: the columns are the batch; a tree is only put together where there is one.
        self._unflatten = store.signature.unflatten if views is None and not store.signature.is_flat else None
        self._windows = {
            source.window: np.asarray(source.window.offsets, np.int64)
            for source in sources
            if not source.is_plain
        }
        sums = {(view.n_step, view.gamma) for view in names.values() if isinstance(view, TransitionView)}
        if sums:
            check_transition(store.signature)
        self._returns = {each: Returns(store, *each) for each in sums}
        self._numbers = [
            (column, source) for source in sources for column in source.columns.values() if column in METADATA
        ]
        self._pool = Pool()
        self._copies = Copies(store, self._pool, sources)
        self._parts = [
            (source.name, (source.view.n_step, source.view.gamma), source.sum_part)
            for source in sources
            if isinstance(source.view, TransitionView) and source.sum_part
        ]
        self._repeated = _repeated(self._parts)
        self._trees = [source for source in sources if source.build is not None]
        self._masked = [source for source in sources if source.view.mask]
        # The names of a batch in the order of the views, whatever is filled in first.
        self._names = {
            each: None
            for name, view in names.items()
            for each in ([name, f"{name}_mask"] if view.mask else [name])
        }
        self.every = tuple(
            (name, source.window.every)
            for source in sources
            for name in (source.name, f"{source.name}_mask")
            if source.window.every > 1 and name in self._names
        )
        self.ahead = Ahead.of(names.values())
        rule = one_rule(names)
        self._relabelling = (
            None if rule is None else Relabelling(store, self._pool, rule, sources, given_at_the_end)
        )
        self._relabelled = [name for name, view in names.items() if isinstance(view, RelabelledView)]
        self.fused = None if rule is not None else fused_views(store, sources, self._unflatten)
        self.is_copied_later = self.fused is None or self.fused.has_wide

    # ---- under the lock --------------------------------------------------------------------------------------------

    def locate(self, rows: NDArray[np.int64], *, padded: bool, random: np.random.Generator) -> Located:
        """Finds every row that the views need. The store's lock must be held, and a reading guard open.

        Args:
            rows: int64[B] or int64[B, L], -1 for padding.
            padded: whether there is padding.
            random: draws hindsight goals; ignored without hindsight.
        """
        located = Located(rows, padded, {}, {}, {})
        for sums, returns in self._returns.items():
            located.sums[sums] = self._add_up(rows.reshape(-1), returns)
        for window, offsets in self._windows.items():
            starts = self._starts(rows, located, window)
            shape = (len(starts), len(offsets))
            found, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
            missing = self._store.window.resolve(
                starts, offsets, window.acting_gives, found.reshape(-1), known.reshape(-1)
            )
            located.found[window] = Found(found, known, missing)
        for column, source in self._numbers:
            wanted = rows if source.is_plain else located.found[source.window].rows
            located.numbers[column, source.window] = self._metadata(column, wanted.reshape(-1))
        if self._relabelling is not None:
            return located._replace(relabelled=self._relabelling.locate(rows, located, random))
        return located

    def _starts(self, rows: NDArray[np.int64], located: Located, window: Window) -> NDArray[np.int64]:
        if window.next_of is not None:
            return located.sums[window.next_of].following
        # Items of one row are each their own row 0.
        if window.every == 1 or rows.ndim == 1:
            return rows.reshape(-1)
        return np.ascontiguousarray(rows[:, :: window.every]).reshape(-1)

    def _add_up(self, rows: NDArray[np.int64], returns: Returns) -> Sums:
        count = len(rows)
        sums, numbers = np.empty((2, count)), np.empty((3, count), np.int64)
        missing = returns.add_up(rows, sums.reshape(-1), numbers[0], numbers[1:].reshape(-1))
        reward, discount = sums.astype(sum_dtype(self._store), copy=False)
        n, last, following = numbers
        return Sums(reward, discount, n, last, following, missing)

    def _metadata(self, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        store = self._store
        numbers = np.empty(rows.shape, np.int64)
        if column == "/episode_id":
            store.window.episode_ids(rows, numbers)
        elif column == "/t":
            numbers[:] = store.arrays.steps[rows] & STEP_MASK
        else:
            page = rows // store.arrays.page_rows
            step = (rows - page * store.arrays.page_rows) // np.maximum(1, store.arrays.pages[page, LANES])
            numbers[:] = store.versions[page * store.arrays.page_rows + step]
        return numbers

    # ---- outside the lock ------------------------------------------------------------------------------------------

    def present(self, located: Located) -> Any:
        """Returns the tree of the batch: copies `[B, ...]` or `[B, L, ...]`, with a view's window axis after those.

        A reading guard must be open.
        """
        out: dict[str, Any] = self._names.copy()
        for source in self._trees:
            out[source.name] = {}
        self._copies.present(located, out)
        for column, source in self._numbers:
            out[source.name] = self._present_number(column, source, located)
        for name, sums, part in self._parts:
            out[name] = getattr(located.sums[sums], part).reshape(located.rows.shape)
        for name in self._repeated:
            out[name] = out[name].copy()
        if self._relabelling is not None:
            assert located.relabelled is not None
            self._relabelling.present(located, located.relabelled, out)
            for name in self._relabelled:
                out[name] = located.relabelled.replaced.reshape(located.rows.shape).copy()
        for source in self._trees:
            assert source.build is not None
            out[source.name] = source.build(out[source.name])
        for source in self._masked:
            known = located.found[source.window].known == KNOWN
            out[f"{source.name}_mask"] = known.reshape(shape_of(source, located))
        return out if self._unflatten is None else self._unflatten(out)

    def finish(self, located: Located, data: Any) -> None:
        """Computes the rewards for hindsight goals with the user's function. Needs no guard."""
        if self._relabelling is not None:
            assert located.relabelled is not None
            self._relabelling.finish(located.relabelled, data)

    def _present_number(self, column: str, source: Source, located: Located) -> NDArray[np.int64]:
        rows, unfit = places_of(source, located)
        values = located.numbers[column, source.window].reshape(rows.shape)
        if unfit is not None:
            values[unfit] = source.fills[""]
        return values


def _repeated(parts: Sequence[tuple[str, tuple[int, float], str]]) -> list[str]:
    """Returns the views that show the same as an earlier view: each array of a batch must be separate."""
    # Rules: replay B4
    seen: set[tuple[tuple[int, float], str]] = set()
    repeated = []
    for name, sums, part in parts:
        if (sums, part) in seen:
            repeated.append(name)
        seen.add((sums, part))
    return repeated
