"""Presents views of the newest rows of trajectories: the views that a policy sees before it acts."""

# Rules: views V7, V14

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import UNKNOWN
from headrace.views.arrays.look_back import LookBack
from headrace.views.columns import Columns
from headrace.views.plan import names_of
from headrace.views.sources import Source, source_of
from headrace.views.view import View


class NewestRows:
    """Plan for presenting causal views of the newest rows of trajectories in arrays.

    Args:
        columns: the columns there are.
        views: causal views of the row's own agent.
        stride: distance of two successive rows of a trajectory in the arrays.

    Attributes:
        columns: names of the columns that are copied.

    Raises:
        SpecError, TypeError, ValueError: as `views.apply`.

    >>> from headrace.spec import ArraySpec, Signature
    >>> columns = Columns(Signature({"observation": ArraySpec((), "int64")}), {})
    >>> plan = NewestRows(columns, {"stack": View("observation", shift="-2:0", fill=-1)})
    >>> plan.present({"observation": np.arange(10, 20)}, np.array([4, 9]), ages=np.array([4, 1]))
    {'stack': array([[12, 13, 14],
           [-1, 18, 19]])}
    """

    def __init__(self, columns: Columns, views: Mapping[str, View], stride: int = 1) -> None:
        names_of(views)  # Refuses a view with the name of another view's mask.
        self._windows = [_Window(source_of(columns, name, view), stride) for name, view in views.items()]
        self.columns: Collection[str] = frozenset(
            column for window in self._windows for column in window.source.columns.values()
        )

    def present(
        self, arrays: Mapping[str, NDArray[Any]], newest: NDArray[np.int64], ages: NDArray[np.int64]
    ) -> dict[str, Any]:
        """Returns the views in arrays of their own, `[M, ...]` or `[M, W, ...]`, trees as their sources are.

        Args:
            arrays: by column, contiguous. A row below 0 counts from their end, so they may be rings.
            newest: int64[M], the newest rows.
            ages: int64[M], how many rows of each trajectory precede its newest one.
        """
        out: dict[str, Any] = {}
        for window in self._windows:
            source = window.source
            out[source.name] = window.copy(arrays, newest, ages)
            if source.view.mask:
                out[f"{source.name}_mask"] = window.mask(ages)
        return out


class _Window:
    """One view, and the rows that it shows."""

    def __init__(self, source: Source, stride: int) -> None:
        self.source = source
        self._backs = -np.array(source.window.offsets, np.int64)
        # An int shift has no axis of its own.
        self._axes = (len(self._backs),) if source.view.has_window else ()
        self._leaves = {
            leaf: LookBack(
                self._backs,
                self._axes,
                stride,
                is_post=source.window.is_post,
                shows_nearest=source.fill_threshold == UNKNOWN,
                fill=fill,
            )
            for leaf, fill in source.fills.items()
        }

    def copy(
        self, arrays: Mapping[str, NDArray[Any]], newest: NDArray[np.int64], ages: NDArray[np.int64]
    ) -> Any:
        """Returns the rows that the view shows, as a tree."""
        source, leaves = self.source, self._leaves
        if source.build is None:
            return leaves[""].copy(arrays[source.columns[""]], newest, ages)
        columns = source.columns.items()
        return source.build(
            {leaf: leaves[leaf].copy(arrays[column], newest, ages) for leaf, column in columns}
        )

    def mask(self, ages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns the places of the view that are data."""
        return ages[:, None] >= self._backs if self._axes else ages >= self._backs
