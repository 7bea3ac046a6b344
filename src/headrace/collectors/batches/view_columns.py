"""Columns of a batch that views present, looking back over the borders of batches."""

# Rules: collectors CB6, CB9

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, Signature
from headrace.trees import map_leaves
from headrace.views import TransitionView, View
from headrace.views.arrays.rows import ArrayPlan, Segments
from headrace.views.causality import look_back
from headrace.views.columns import Columns
from headrace.views.promised import unknown_views
from headrace.views.view import check_views

Arrays = Mapping[str, NDArray[Any]]

# Columns of every batch that number its rows; views may show them, and cannot take their names.
_NUMBERS = ("episode_id", "t", "policy_version")
_KNOWN_AFTER = ("episode_id", "t")


@dataclass(frozen=True)
class Pieces:
    """The rows of each trajectory in one batch, laid out one piece after another.

    Each piece has its rows of earlier batches, its rows, and a row for the observation after them. P pieces have R rows
    in the batch; row t of lane i of a batch of T steps is row `i * T + t`.

    Attributes:
        lanes: int64[P], of the pieces.
        firsts, lasts: int64[P], first and last row in the batch.
        earlier: int64[P], number of rows of earlier batches.
    """

    lanes: NDArray[np.int64]
    firsts: NDArray[np.int64]
    lasts: NDArray[np.int64]
    earlier: NDArray[np.int64]

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """int64[P], rows in the batch."""
        return self.lasts - self.firsts + 1

    @cached_property
    def sources(self) -> NDArray[np.int64]:
        """int64[R], the rows in the batch."""
        return _ranges(self.firsts, self.lengths)

    @cached_property
    def begins(self) -> NDArray[np.int64]:
        """int64[P], the first row of each piece in the layout."""
        return self.afters - self.lengths - self.earlier

    @cached_property
    def afters(self) -> NDArray[np.int64]:
        """int64[P], the row of the observation after each piece in the layout."""
        afters: NDArray[np.int64] = np.cumsum(self.earlier + self.lengths + 1) - 1
        return afters

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """int64[R], the rows of the batch in the layout."""
        return _ranges(self.begins + self.earlier, self.lengths)

    @property
    def count(self) -> int:
        """Number of rows of the layout."""
        return int(self.afters[-1]) + 1 if len(self.afters) else 0

    @property
    def segments(self) -> Segments:
        """The rows of the batch, with their surroundings."""
        post_ends = np.repeat(self.afters, self.lengths)
        begins = np.repeat(self.begins, self.lengths)
        return Segments(self.rows, begins, post_ends + 1, post_ends, np.arange(len(begins)))


class ViewColumns:
    """Presents views of the steps of n lanes, batch after batch.

    Args:
        views: maps names to views; those with `used_for_training=False` are left out.
        lanes: n.

    Attributes:
        views: those that are columns of batches.
        shown: the views that the present columns can show.

    >>> columns = ViewColumns({"last": View("action", shift=-1, fill=9)}, 1)
    >>> columns.use(Signature({"action": ArraySpec((), "int64")}), ())
    >>> def present(actions, first):
    ...     t = np.arange(first, first + 2)[None]
    ...     counted = {"episode_id": np.zeros_like(t), "t": t, "policy_version": np.zeros_like(t)}
    ...     return columns.present({"action": np.array([actions]), **counted}, {}, np.ones((1, 2), bool))
    >>> present([1, 2], 0), present([3, 4], 2)
    ({'last': array([[9, 1]])}, {'last': array([[2, 3]])})
    """

    def __init__(self, views: Mapping[str, View], lanes: int) -> None:
        self.views = {name: view for name, view in views.items() if view.used_for_training}
        self._depth = look_back(self.views.values())
        self._counts = np.zeros(lanes, np.int64)
        # The episode of the rows kept in each lane, and the index of the next row in it.
        self._ids, self._next_t = np.full(lanes, -1), np.zeros(lanes, np.int64)
        self._kept: dict[str, NDArray[Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Returns the rows that the next batch looks back on."""
        return {
            "counts": self._counts.copy(),
            "ids": self._ids.copy(),
            "next_t": self._next_t.copy(),
            "kept": dict(self._kept),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on after the rows of a state of the same views."""
        self._counts, self._ids = np.array(state["counts"]), np.array(state["ids"])
        self._next_t, self._kept = np.array(state["next_t"]), dict(state["kept"])

    def use(self, signature: Signature, observed: Collection[str]) -> None:
        """Plans for these columns, and leaves out the views of others.

        Args:
            signature: of a step.
            observed: names of the columns that come with an observation.

        Raises:
            SpecError, TypeError, ValueError: a view that cannot be shown.
        """
        columns = _columns(signature, observed)
        unknown = unknown_views(self.views, columns.signature.tree)
        self.shown = {name: view for name, view in self.views.items() if name not in unknown}
        self._plan = ArrayPlan(columns, self.shown)
        self._specs = {name: columns.signature.columns[name] for name in self._read()}

    def _read(self) -> list[str]:
        summed = (
            ("reward", "terminated")
            if any(isinstance(view, TransitionView) for view in self.shown.values())
            else ()
        )
        return list(dict.fromkeys([*self._plan.columns, *summed]))

    def present(self, columns: Arrays, following: Arrays, mask: NDArray[np.bool_]) -> dict[str, Any]:
        """Returns the arrays of the views, `[n, T, ...]` or `[n, T, W, ...]`, zeros where `mask` is False.

        Args:
            columns: `[n, T, ...]` of each column, numbers of the rows included.
            following: `[n, T, ...]`, the observations that followed.
            mask: bool[n, T], where there is a transition.
        """
        if not self.shown:
            return {}
        pieces = self._pieces(columns["episode_id"], columns["t"], mask)
        arrays = {
            name: self._laid_out(name, spec, columns[name], following, pieces)
            for name, spec in self._specs.items()
        }
        self._keep(arrays, pieces, columns)
        return {
            name: map_leaves(lambda leaf: _spread(leaf, mask), tree)
            for name, tree in self._plan.present(arrays, pieces.segments).items()
        }

    def _pieces(self, ids: NDArray[np.int64], t: NDArray[np.int64], mask: NDArray[np.bool_]) -> Pieces:
        real = np.flatnonzero(mask)
        ids, t, lanes = ids.reshape(-1)[real], t.reshape(-1)[real], real // mask.shape[1]
        cuts = (np.diff(ids) != 0) | (np.diff(lanes) != 0)
        starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(real)), np.bool_), cuts]))
        stops = np.append(starts[1:], len(real)) if len(starts) else starts
        lanes = lanes[starts]
        goes_on = (ids[starts] == self._ids[lanes]) & (t[starts] == self._next_t[lanes])
        return Pieces(lanes, real[starts], real[stops - 1], np.where(goes_on, self._counts[lanes], 0))

    def _laid_out(
        self, name: str, spec: ArraySpec, column: NDArray[Any], following: Arrays, pieces: Pieces
    ) -> NDArray[Any]:
        """Returns a column `[n, T, ...]` as the pieces are laid out."""
        out = np.zeros((pieces.count, *spec.shape), spec.dtype)
        out[pieces.rows] = _flat(column)[pieces.sources]
        if name in self._kept and pieces.earlier.any():
            firsts = (np.cumsum(self._counts) - self._counts)[pieces.lanes]
            out[_ranges(pieces.begins, pieces.earlier)] = self._kept[name][_ranges(firsts, pieces.earlier)]
        if name in following:
            out[pieces.afters] = _flat(following[name])[pieces.lasts]
        elif name in _KNOWN_AFTER:
            out[pieces.afters] = out[pieces.afters - 1] + (name == "t")
        return out

    def _keep(self, arrays: Arrays, pieces: Pieces, columns: Arrays) -> None:
        """Keeps the newest rows of each lane for the views of the next batch."""
        newest = np.flatnonzero(np.diff(pieces.lanes, append=-1))
        lanes, afters, lasts = pieces.lanes[newest], pieces.afters[newest], pieces.lasts[newest]
        counts = np.minimum(self._depth, afters - pieces.begins[newest])
        self._counts[:] = 0
        self._counts[lanes] = counts
        self._ids[lanes] = _flat(columns["episode_id"])[lasts]
        self._next_t[lanes] = _flat(columns["t"])[lasts] + 1
        rows = _ranges(afters - counts, counts)
        self._kept = {name: array[rows] for name, array in arrays.items()}


def check_view_columns(views: Mapping[str, View]) -> None:
    """Refuses views that no batch of a collector can show.

    Raises:
        TypeError: not a dict of views.
        ValueError: the name of a column that numbers rows; `every` > 1.
    """
    check_views(views)
    for name, view in views.items():
        if name in (*_NUMBERS, "mask"):
            raise ValueError(f"view {name!r}: expected a name that no column of every batch has")
        if view.every > 1 and view.used_for_training:
            raise ValueError(
                f"view {name!r}: every: expected 1, since a batch of a collector has every row, got {view.every}; "
                "set used_for_training=False, and sample a replay through the view"
            )


def check_shown(views: Mapping[str, View], signature: Signature, observed: Collection[str]) -> None:
    """Refuses views that these columns cannot show.

    Raises:
        SpecError: an unknown column; a space or a fill that does not fit.
        ValueError: a mask with the name of a column; a view for acting that looks ahead; a view of other agents; a view
            with hindsight.
    """
    columns = _columns(signature, observed)
    ArrayPlan(columns, views)
    for name, view in views.items():
        if view.mask and f"{name}_mask" in columns.signature.tree:
            raise ValueError(
                f"view {name!r}: mask: expected no column named '{name}_mask', where its mask is presented"
            )


def _columns(signature: Signature, observed: Collection[str]) -> Columns:
    numbers = dict.fromkeys(_NUMBERS, ArraySpec((), np.int64))
    final = frozenset([*observed, *_KNOWN_AFTER])
    return Columns(Signature({**dict(signature.tree), **numbers}), {}, final)


def _ranges(firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns `counts` numbers from each of `firsts` on, one after another.

    >>> _ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ranges: NDArray[np.int64] = np.arange(counts.sum()) + np.repeat(
        firsts - (np.cumsum(counts) - counts), counts
    )
    return ranges


def _flat(column: NDArray[Any]) -> NDArray[Any]:
    """Returns a column `[n, T, ...]` as `[n * T, ...]`."""
    return column.reshape(-1, *column.shape[2:])


def _spread(rows: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[Any]:
    """Returns rows `[frames, ...]` as `[n, T, ...]`, with zeros where `mask` is False."""
    if len(rows) == mask.size:
        return rows.reshape(*mask.shape, *rows.shape[1:])
    spread = np.zeros((*mask.shape, *rows.shape[1:]), rows.dtype)
    spread[mask] = rows
    return spread
