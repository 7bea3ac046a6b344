"""Rows of arrays that are to be presented: rows of an episode, a fragment, or the histories of environments."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.gather import Pool, gather
from headrace.views.arrays.window import resolve
from headrace.views.columns import Columns
from headrace.views.located import Found, Sums
from headrace.views.other_agents import Beside, agent_view
from headrace.views.plan import Plan, names_of
from headrace.views.returns import sum_dtype
from headrace.views.sources import Window
from headrace.views.view import View

# Bytes of a row up to which NumPy copies rows quicker, as numbers.
_SMALL_ROW = 32

Arrays = Mapping[str, NDArray[Any]]


class Segments(NamedTuple):
    """Rows, and the segment around each of them; int64[M] each.

    Attributes:
        rows: number of the row in the arrays.
        begins: first row of the segment, index 0 of its time; later where the rows before it are not needed any more.
        pre_ends: row after the last known value of columns that are known before acting.
        post_ends: row after the last known value of the other columns.
        places: number of the row in what is presented, from which `every` counts.
    """

    rows: NDArray[np.int64]
    begins: NDArray[np.int64]
    pre_ends: NDArray[np.int64]
    post_ends: NDArray[np.int64]
    places: NDArray[np.int64]

    @classmethod
    def of_fragment(cls, stop: int, shown: range) -> Segments:
        """Returns rows of one episode that begins at row 0.

        Args:
            stop: the fragment's end: the observation of row `stop` is known, its action is not.
            shown: the rows to present.
        """
        # Rules: views V12
        rows = np.arange(shown.start, shown.stop)
        ends = np.full((2, len(rows)), stop)
        ends[0] += 1
        return cls(rows, np.zeros_like(rows), ends[0], ends[1], np.arange(len(rows)))

    def every(self, k: int) -> Segments:
        """Returns rows 0, k, 2k, ... of what is presented."""
        # Rules: views V9
        if k == 1:
            return self
        kept = self.places % k == 0
        return Segments(*(numbers[kept] for numbers in self))


class ArrayRows:
    """Finds the rows around rows of arrays.

    Args:
        arrays: by column.
        segments: the rows.
    """

    padded = False

    def __init__(self, arrays: Arrays, segments: Segments) -> None:
        self._arrays, self._segments = arrays, segments
        self.rows = segments.rows

    def kept(self, every: int) -> NDArray[np.int64]:
        """Returns rows 0, k, 2k, ... of what is presented."""
        return self._segments.every(every).rows

    def resolve(
        self, window: Window, offsets: NDArray[np.int64], following: NDArray[np.int64] | None
    ) -> Found:
        """Finds the rows of a window."""
        segments = self._segments.every(window.every)
        starts = segments.rows if following is None else following
        shape = (len(starts), len(offsets))
        rows, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
        ends = segments.post_ends if window.is_post else segments.pre_ends
        missing = resolve(
            starts, segments.begins, ends, offsets, window.is_post, rows.reshape(-1), known.reshape(-1)
        )
        return Found(rows, known, missing)

    def add_up(self, sums: tuple[int, float]) -> Sums:
        """Computes the n-step transitions from the rows, given (n_step, gamma)."""
        # Rules: views V18
        n_step, gamma = sums
        rewards, terminated = self._arrays["reward"], self._arrays["terminated"] != 0
        rows, _, pre_ends, post_ends, _ = self._segments
        n = np.clip(_ends_of_transitions(pre_ends, post_ends, terminated) - rows, 0, n_step)
        scales = np.ones(1 + n.max(initial=0))
        np.cumprod(np.full(len(scales) - 1, gamma), out=scales[1:])
        reward = np.zeros(len(rows))
        for step in range(len(scales) - 1):
            used = np.flatnonzero(n > step)
            reward[used] += scales[step] * rewards[rows[used] + step]
        last = np.where(n > 0, rows + n - 1, -1)
        goes_on = n > 0
        goes_on[goes_on] = ~terminated[last[goes_on]]
        dtype = sum_dtype(rewards.dtype)
        return Sums(
            reward.astype(dtype, copy=False),
            (scales[n] * goes_on).astype(dtype, copy=False),
            n,
            last,
            np.where(rows + n < pre_ends, rows + n, last),
            int(np.count_nonzero(n == 0)),
        )


def _ends_of_transitions(
    pre_ends: NDArray[np.int64], post_ends: NDArray[np.int64], terminated: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Returns the row after the last transition of each segment: its next observation is known, or not needed."""
    ends = np.minimum(post_ends, pre_ends - 1)
    unseen = np.flatnonzero(ends < post_ends)
    ends[unseen] += terminated[ends[unseen]]
    return ends


class ArrayPlan:
    """Plan for presenting views of arrays.

    Args:
        columns: the columns there are.
        views: maps names to views.
        columns_of: maps the id of each agent to its columns, where there are several agents.

    Raises:
        SpecError, TypeError, ValueError: as `Plan`, and for views that only stored rows have.
    """

    def __init__(
        self, columns: Columns, views: Mapping[str, View], columns_of: Mapping[Any, Columns] | None = None
    ) -> None:
        for name, view in views.items():
            if view.hindsight is not None:
                raise ValueError(
                    f"view {name!r}: hindsight draws goals when a replay is sampled; here use the views that were "
                    "given to views.hindsight"
                )
        others = (
            {}
            if columns_of is None
            else {name: view for name, view in views.items() if view.agent is not None}
        )
        self._plan = Plan(columns, {name: view for name, view in views.items() if name not in others})
        self._agent_views = [agent_view(name, view, columns_of or {}) for name, view in others.items()]
        self._names = names_of(views) if others else []
        self._pool = Pool()
        self._sets: dict[str, list[tuple[int, int]]] = {}
        for number, (rows, column) in enumerate(self._plan.copies.columns):
            self._sets.setdefault(column, []).append((number, rows))

    @property
    def columns(self) -> Collection[str]:
        """Names of the columns that are copied."""
        return self._sets.keys()

    def present(
        self, arrays: Arrays, segments: Segments, beside: Beside | None = None, *, pool: Pool | None = None
    ) -> dict[str, Any]:
        """Returns the arrays of the views, `[M, ...]` or `[M, W, ...]`, trees as their sources are.

        Args:
            arrays: by column; with a row for each row number.
            segments: the rows to present.
            beside: the other agents, for views of them; those have an axis for a list of agents before the window's.
            pool: of the buffers for large results; None for the plan's own, which keeps them.
        """
        located = self._plan.locate(ArrayRows(arrays, segments))
        out = self._plan.present(located, lambda sets: self._copy(arrays, sets, pool or self._pool))
        self._plan.build_trees(out)
        if not self._agent_views:
            return out
        assert beside is not None
        for each in self._agent_views:
            each.present(beside, segments.places, out)
        return {name: out[name] for name in self._names}

    def _copy(self, arrays: Arrays, sets: Sequence[NDArray[np.int64]], pool: Pool) -> list[NDArray[Any]]:
        out: list[Any] = [None] * len(self._plan.copies.columns)
        for column, shown in self._sets.items():
            copies = _take(arrays[column], [sets[rows] for _, rows in shown], pool)
            for (number, _), copied in zip(shown, copies, strict=True):
                out[number] = copied
        return out


def _take(array: NDArray[Any], sets: Sequence[NDArray[np.int64]], pool: Pool) -> list[NDArray[Any]]:
    if not len(array):
        # Nothing is known of the column: there is only fill.
        return [np.zeros(rows.shape + array.shape[1:], array.dtype) for rows in sets]
    if not array.flags.c_contiguous or array.itemsize * array[0].size <= _SMALL_ROW:
        return [_take_rows(array, rows, pool) for rows in sets]
    return gather(array, sets, pool)


def _take_rows(array: NDArray[Any], rows: NDArray[np.int64], pool: Pool) -> NDArray[Any]:
    out = pool.empty(rows.shape + array.shape[1:], array.dtype)
    return array.take(rows, 0, out, mode="clip")
