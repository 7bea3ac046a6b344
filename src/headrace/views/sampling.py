"""Views on stored rows: what `Replay.sample` presents (views V16 to V18).

A `SamplingPlan` is made once for a dict of views and a store. Sampling has two halves: `locate`, under the store's
lock, follows lanes and links to row numbers; `present`, outside it, copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.commit import episode_ids
from headrace.store.gather import Pool, gather
from headrace.store.layout import LANES, STEP_MASK
from headrace.store.store import Store
from headrace.store.window import EDGE, KNOWN, UNKNOWN, resolve_in
from headrace.views.sources import METADATA, Source, Window, check_transition, source_of
from headrace.views.transition import TransitionView, add_up_in
from headrace.views.view import View


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


class Located(NamedTuple):
    """Row numbers of one batch.

    Attributes:
        rows: int64[B] or int64[B, L]; -1 where a row is invented.
        padded: whether some are.
        found: what each window found.
        sums: by (n_step, gamma), the arrays of `transition.add_up`.
        numbers: metadata columns by name and window.
    """

    rows: NDArray[np.int64]
    padded: bool
    found: dict[Window, Found]
    sums: dict[tuple[int, float], dict[str, NDArray[Any]]]
    numbers: dict[tuple[str, Window], NDArray[Any]]


Presenter = Callable[[Located, dict[str, Any]], None]
"""Writes one view of a batch under its name."""


class SamplingPlan:
    """How to present a dict of views, or every column as it is, from rows of a store.

    Args:
        store: where the rows are.
        views: name to view; None presents the signature's own tree.
        given_at_the_end: columns for which final rows were given a value.

    Raises:
        SpecError: an unknown source, a space that contradicts the column, a fill that the dtype cannot hold.
    """

    def __init__(
        self, store: Store, views: Mapping[str, View] | None, given_at_the_end: frozenset[str]
    ) -> None:
        self._store = store
        self._carve = (store.memory, store.places, store.arrays.page_rows)
        self._pool = Pool()
        names = {name: View(name) for name in store.signature.columns} if views is None else views
        for name, view in names.items():
            if not isinstance(view, View):
                raise TypeError(f"views: {name!r}: expected a View, got {view!r}")
        sources = [
            source_of(store.signature, name, view, given_at_the_end)
            for name, view in names.items()
            if view.used_for_training
        ]
        # None: the columns are the batch; a tree is only put together where there is one.
        self._unflatten = store.signature.unflatten if views is None and not store.signature.is_flat else None
        self._windows = {
            source.window: np.asarray(source.window.offsets, np.int64)
            for source in sources
            if not source.is_plain
        }
        self._sums = {
            (view.n_step, view.gamma) for view in names.values() if isinstance(view, TransitionView)
        }
        self._numbers = [
            (column, source) for source in sources for column in source.columns.values() if column in METADATA
        ]
        self._presenters = [self._presenter(source) for source in sources]
        if self._sums:
            check_transition(store.signature)

    # ---- under the lock --------------------------------------------------------------------------------------------

    def locate(self, rows: NDArray[np.int64], *, padded: bool) -> Located:
        """Find every row the views need. The store's lock must be held, and a reading guard open."""
        located = Located(rows, padded, {}, {}, {})
        for n_step, gamma in self._sums:
            located.sums[n_step, gamma] = self._add_up(rows.reshape(-1), n_step, gamma)
        for window, offsets in self._windows.items():
            starts = self._starts(rows, located, window)
            shape = (len(starts), len(offsets))
            found, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
            missing = resolve_in(*self._carve, starts, offsets, window.acting_gives, found, known)
            located.found[window] = Found(found, known, missing)
        for column, source in self._numbers:
            wanted = rows if source.is_plain else located.found[source.window].rows
            located.numbers[column, source.window] = self._metadata(column, wanted.reshape(-1))
        return located

    def _starts(self, rows: NDArray[np.int64], located: Located, window: Window) -> NDArray[np.int64]:
        if window.next_of is not None:
            return located.sums[window.next_of]["following"]
        # Items of one row are each their own row 0.
        if window.every == 1 or rows.ndim == 1:
            return rows.reshape(-1)
        return np.ascontiguousarray(rows[:, :: window.every]).reshape(-1)

    def _add_up(self, rows: NDArray[np.int64], n_step: int, gamma: float) -> dict[str, NDArray[Any]]:
        rewards = self._store.columns["reward"]
        dtype = rewards.dtype if rewards.dtype.kind == "f" else np.dtype(np.float64)
        count = len(rows)
        out: dict[str, NDArray[Any]] = {
            "reward": np.empty(count, dtype),
            "discount": np.empty(count, dtype),
            "n": np.empty(count, np.int64),
            "last": np.empty(count, np.int64),
            "following": np.empty(count, np.int64),
        }
        add_up_in(
            *self._carve, rows, rewards, self._store.columns["terminated"], n_step, gamma, *out.values()
        )
        return out

    def _metadata(self, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        store = self._store
        numbers = np.empty(rows.shape, np.int64)
        if column == "/episode_id":
            episode_ids(store.arrays, rows, numbers)
        elif column == "/t":
            numbers[:] = store.arrays.steps[rows] & STEP_MASK
        else:
            page = rows // store.arrays.page_rows
            step = (rows - page * store.arrays.page_rows) // np.maximum(1, store.arrays.pages[page, LANES])
            numbers[:] = store.versions[page * store.arrays.page_rows + step]
        return numbers

    # ---- outside the lock ------------------------------------------------------------------------------------------

    def present(self, located: Located) -> Any:
        """The tree of the batch: copies, `[B, ...]` or `[B, L, ...]`, a view's window axis after those."""
        out: dict[str, Any] = {}
        for present in self._presenters:
            present(located, out)
        return out if self._unflatten is None else self._unflatten(out)

    def _presenter(self, source: Source) -> Presenter:
        view = source.view
        if isinstance(view, TransitionView) and view.part in ("reward", "discount", "n"):
            return self._sum_presenter(source.name, view)
        if isinstance(view, TransitionView) and view.part == "last":
            return self._last_presenter(source, view)
        if source.build is None and source.is_plain and source.columns[""] not in METADATA:
            return self._row_presenter(source)
        return self._window_presenter(source)

    def _row_presenter(self, source: Source) -> Presenter:
        name, column, fill = source.name, self._store.columns[source.columns[""]], source.fills[""]
        pool = self._pool

        def present(located: Located, out: dict[str, Any]) -> None:
            rows = located.rows
            values = out[name] = gather(column, rows, pool)
            if located.padded:
                values[rows < 0] = fill

        return present

    def _sum_presenter(self, name: str, view: TransitionView) -> Presenter:
        key, part = (view.n_step, view.gamma), view.part

        def present(located: Located, out: dict[str, Any]) -> None:
            out[name] = located.sums[key][part].reshape(located.rows.shape)

        return present

    def _last_presenter(self, source: Source, view: TransitionView) -> Presenter:
        key, column = (view.n_step, view.gamma), self._store.columns[source.columns[""]]

        def present(located: Located, out: dict[str, Any]) -> None:
            last = located.sums[key]["last"]
            values = gather(column, last, self._pool)
            values[last < 0] = 0
            out[source.name] = values.reshape(located.rows.shape)

        return present

    def _window_presenter(self, source: Source) -> Presenter:
        def present(located: Located, out: dict[str, Any]) -> None:
            leaves = {
                leaf: self._column(source, column, source.fills[leaf], located)
                for leaf, column in source.columns.items()
            }
            out[source.name] = leaves[""] if source.build is None else source.build(leaves)
            if source.view.mask:
                known = located.found[source.window].known == KNOWN
                out[f"{source.name}_mask"] = known.reshape(self._shape(source, located))

        return present

    def _shape(self, source: Source, located: Located) -> tuple[int, ...]:
        shape = located.rows.shape
        if source.window.every > 1 and len(shape) > 1:
            shape = (*shape[:-1], -(-shape[-1] // source.window.every))
        return (*shape, len(source.window.offsets)) if source.view.has_window else shape

    def _column(self, source: Source, column: str, fill: NDArray[Any], located: Located) -> NDArray[Any]:
        if source.is_plain:
            values = self._values(column, located.rows, located, source.window)
            if located.padded:
                values[located.rows < 0] = fill
            return values
        found = located.found[source.window]
        shape = self._shape(source, located)
        values = self._values(column, found.rows.reshape(shape), located, source.window)
        if found.missing:
            # EDGE places hold the nearest value already; other fills replace it.
            unfit = found.known <= (UNKNOWN if source.shows_edge else EDGE)
            values[unfit.reshape(shape)] = fill
        return values

    def _values(self, column: str, rows: NDArray[np.int64], located: Located, window: Window) -> NDArray[Any]:
        if column in METADATA:
            return located.numbers[column, window].reshape(rows.shape)
        return gather(self._store.columns[column], rows, self._pool)
