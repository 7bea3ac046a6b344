"""Views on stored rows: what `Replay.sample` presents (views V16 to V18).

A `SamplingPlan` is made once for a dict of views and a store. Sampling has two halves: `locate`, under the store's
lock, follows lanes and links to row numbers; `present`, outside it, copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature
from headrace.store.commit import episode_ids
from headrace.store.gather import Pool, gather
from headrace.store.layout import LANES, STEP_MASK
from headrace.store.store import Store
from headrace.store.window import EDGE, KNOWN, UNKNOWN, resolve
from headrace.views.transition import TransitionView, add_up
from headrace.views.view import View, fill_value

# Columns that are known before acting, beside those whose final row was given a value (views V2).
_PRE = ("observation", "state_in_", "t", "episode_id", "policy_version")
METADATA = {
    "t": ArraySpec((), np.int64),
    "episode_id": ArraySpec((), np.int64),
    "policy_version": ArraySpec((), np.int64),
}


class _Window(NamedTuple):
    """Views that look at the same places of rows share one call of the window function."""

    offsets: tuple[int, ...]
    acting_gives: bool
    every: int
    next_of: (
        tuple[int, float] | None
    )  # (n_step, gamma): seen from the next row of that transition, not from the row


@dataclass
class _Source:
    """One view: where its numbers come from.

    Attributes:
        columns: name under the view ("" for the view itself) to column of the store.
        fills: the fill of each, a row's shape.
    """

    name: str
    view: View
    window: _Window
    columns: dict[str, str]
    fills: dict[str, NDArray[Any]]
    build: Any

    @property
    def is_plain(self) -> bool:
        """Whether the row itself is presented, and nothing has to be filled that is not zeros in the store already."""
        window = self.window
        return (
            window.offsets == (0,)
            and window.next_of is None
            and not self.view.mask
            and (not window.acting_gives or (isinstance(self.view.fill, str) and self.view.fill == "zeros"))
        )


class Located(NamedTuple):
    """Row numbers of one batch.

    Attributes:
        rows: int64[B] or int64[B, L]; -1 where a row is invented.
        found: by window, rows int64[M, W] and what is known uint8[M, W] (`store.window`).
        sums: by (n_step, gamma), the arrays of `transition.add_up`.
        numbers: metadata columns by name and window.
    """

    rows: NDArray[np.int64]
    padded: bool
    found: dict[_Window, tuple[NDArray[np.int64], NDArray[np.uint8]]]
    sums: dict[tuple[int, float], dict[str, NDArray[Any]]]
    numbers: dict[tuple[str, _Window], NDArray[Any]]


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
        self._pool = Pool()
        self._views = views
        names = {name: View(name) for name in store.signature.columns} if views is None else views
        self._sources = [
            _source(store.signature, name, view, given_at_the_end)
            for name, view in names.items()
            if view.used_for_training
        ]
        self._windows = {source.window for source in self._sources if not source.is_plain}
        self._sums = {
            (view.n_step, view.gamma) for view in names.values() if isinstance(view, TransitionView)
        }
        if self._sums:
            _check_transition(store.signature)

    def locate(self, rows: NDArray[np.int64], *, padded: bool) -> Located:
        """Find every row the views need. The store's lock must be held, and a reading guard open."""
        arrays = self._store.arrays
        located = Located(rows, padded, {}, {}, {})
        flat = rows.reshape(-1)
        for n_step, gamma in self._sums:
            located.sums[n_step, gamma] = self._add_up(flat, n_step, gamma)
        for window in self._windows:
            starts = self._starts(rows, located, window)
            shape = (starts.shape[0], len(window.offsets))
            found, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
            resolve(arrays, starts, np.asarray(window.offsets, np.int64), window.acting_gives, found, known)
            located.found[window] = (found, known)
        for source in self._sources:
            for column in source.columns.values():
                if column in METADATA:
                    wanted = flat if source.is_plain else located.found[source.window][0].reshape(-1)
                    located.numbers[column, source.window] = self._metadata(column, wanted)
        return located

    def _starts(self, rows: NDArray[np.int64], located: Located, window: _Window) -> NDArray[np.int64]:
        if window.next_of is not None:
            return located.sums[window.next_of]["following"]
        return np.ascontiguousarray(rows[..., :: window.every] if window.every > 1 else rows).reshape(-1)

    def _add_up(self, rows: NDArray[np.int64], n_step: int, gamma: float) -> dict[str, NDArray[Any]]:
        rewards = self._store.columns["reward"]
        dtype = rewards.dtype if rewards.dtype.kind == "f" else np.dtype(np.float64)
        count = rows.shape[0]
        out = {
            "reward": np.empty(count, dtype),
            "discount": np.empty(count, dtype),
            "n": np.empty(count, np.int64),
            "last": np.empty(count, np.int64),
            "following": np.empty(count, np.int64),
        }
        add_up(
            self._store.arrays, rows, rewards, self._store.columns["terminated"], n_step, gamma, *out.values()
        )
        return out

    def _metadata(self, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        store = self._store
        numbers = np.empty(rows.shape, np.int64)
        if column == "episode_id":
            episode_ids(store.arrays, rows, numbers)
        elif column == "t":
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
        for source in self._sources:
            self._present(source, located, out)
        return self._store.signature.unflatten(out) if self._views is None else out

    def _present(self, source: _Source, located: Located, out: dict[str, Any]) -> None:
        view = source.view
        if isinstance(view, TransitionView) and view.part in ("reward", "discount", "n"):
            sums = located.sums[view.n_step, view.gamma]
            out[source.name] = sums[view.part].reshape(located.rows.shape)
            return
        if isinstance(view, TransitionView) and view.part == "last":
            out[source.name] = self._last(source, located)
            return
        leaves = {
            leaf: self._column(source, column, source.fills[leaf], located)
            for leaf, column in source.columns.items()
        }
        out[source.name] = source.build(leaves)
        if view.mask:
            known = located.found[source.window][1] == KNOWN
            out[f"{source.name}_mask"] = known.reshape(self._shape(source, located))

    def _last(self, source: _Source, located: Located) -> NDArray[Any]:
        view = source.view
        assert isinstance(view, TransitionView)
        last = located.sums[view.n_step, view.gamma]["last"]
        values = gather(self._store.columns[source.columns[""]], last, self._pool)
        values[last < 0] = 0
        return values.reshape(located.rows.shape)

    def _shape(self, source: _Source, located: Located) -> tuple[int, ...]:
        rows = located.rows
        shape = rows.shape
        if source.window.every > 1 and rows.ndim > 1:
            shape = (*shape[:-1], -(-shape[-1] // source.window.every))
        return (*shape, len(source.window.offsets)) if source.view.has_window else shape

    def _column(self, source: _Source, column: str, fill: NDArray[Any], located: Located) -> NDArray[Any]:
        if source.is_plain:
            values = self._values(column, located.rows, located, source.window)
            if located.padded:
                values[located.rows < 0] = fill
            return values
        rows, known = located.found[source.window]
        shape = self._shape(source, located)
        values = self._values(column, rows.reshape(shape), located, source.window)
        # EDGE places hold the nearest value already; other fills replace it.
        edge = isinstance(source.view.fill, str) and source.view.fill == "edge"
        unfit = known <= (UNKNOWN if edge else EDGE)
        if unfit.any():
            values[unfit.reshape(shape)] = fill
        return values

    def _values(
        self, column: str, rows: NDArray[np.int64], located: Located, window: _Window
    ) -> NDArray[Any]:
        if column in METADATA:
            return located.numbers[column, window].reshape(rows.shape)
        return gather(self._store.columns[column], rows, self._pool)


def _source(signature: Signature, name: str, view: View, given_at_the_end: frozenset[str]) -> _Source:
    path = view.data_col or name
    columns = _columns(signature, name, path)
    specs = {leaf: METADATA.get(column) or signature.columns[column] for leaf, column in columns.items()}
    _check_space(name, view, specs)
    acting_gives = not any(
        path == pre or path.startswith((f"{pre}/", pre if pre.endswith("_") else f"{pre}/")) for pre in _PRE
    ) and not any(column in given_at_the_end for column in columns.values())
    next_of = (view.n_step, view.gamma) if isinstance(view, TransitionView) and view.part == "next" else None
    return _Source(
        name=name,
        view=view,
        window=_Window(view.offsets, acting_gives, view.every, next_of),
        columns=columns,
        fills={
            leaf: fill_value(name, _leaf_fill(view.fill, leaf), spec.shape, spec.dtype)
            for leaf, spec in specs.items()
        },
        build=_builder(signature, path, columns),
    )


def _columns(signature: Signature, name: str, path: str) -> dict[str, str]:
    """The columns at or under a path: what stands below the path, to the column's name."""
    if path in signature.columns or path in METADATA:
        return {"": path}
    below = {column[len(path) + 1 :]: column for column in signature.columns if column.startswith(f"{path}/")}
    if not below:
        known = ", ".join([*signature.columns, *METADATA])
        raise SpecError(f"view {name!r}: no column {path!r}; there are {known}")
    return below


def _builder(signature: Signature, path: str, columns: dict[str, str]) -> Any:
    if "" in columns:
        return lambda leaves: leaves[""]
    node = signature.tree
    for part in path.split("/"):
        node = _child(node, part)
    return Signature(node).unflatten


def _child(node: Any, part: str) -> Any:
    if isinstance(node, Mapping):
        return node[part]
    if isinstance(node, tuple | list) and part.isdigit():
        return node[int(part)]
    return getattr(node, part)


def _leaf_fill(fill: Any, leaf: str) -> Any:
    if isinstance(fill, Mapping):
        for part in leaf.split("/"):
            fill = fill[part]
    return fill


def _check_space(name: str, view: View, specs: dict[str, ArraySpec]) -> None:
    if view.space is None:
        return
    wanted = Signature(view.space) if isinstance(view.space, ArraySpec) else Signature.of_space(view.space)
    shapes = {leaf: spec.shape for leaf, spec in specs.items()}
    expected = {"" if leaf == trees.BARE else leaf: spec.shape for leaf, spec in wanted.columns.items()}
    if shapes != expected:
        raise SpecError(f"view {name!r}: expected rows of shape {expected}, as its space says, got {shapes}")


def _check_transition(signature: Signature) -> None:
    for column in ("reward", "terminated", "truncated"):
        spec = signature.columns.get(column)
        if spec is None or spec.shape != ():
            raise SpecError(
                f"views.transition: expected a scalar column {column!r} in the signature, got {spec}"
            )
