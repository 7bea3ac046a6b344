"""Windows that a policy sees of trajectories longer than these windows: no row needs a fill."""

# Rules: views-rollouts V7, V14

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.gather import Pool, gather
from headrace.views import View
from headrace.views.causality import look_back
from headrace.views.columns import Columns
from headrace.views.sources import source_of


class RecentWindows:
    """Presents causal views where every offset is inside the trajectory, which takes less time than the general way.

    Args:
        columns: the columns there are.
        views: causal views of the row's own agent.

    Attributes:
        look_back: number of rows before the newest one that must be in the trajectory.

    >>> from headrace.spec import ArraySpec, Signature
    >>> columns = Columns(Signature({"observation": ArraySpec((), "int64")}), {})
    >>> recent = RecentWindows(columns, {"stack": View("observation", shift="-2:0")})
    >>> recent.look_back, recent.present({"observation": np.arange(10, 20)}, np.array([4, 9]))
    (2, {'stack': array([[12, 13, 14],
           [17, 18, 19]])})
    """

    def __init__(self, columns: Columns, views: Mapping[str, View]) -> None:
        self.look_back = look_back(views.values())
        self._sources = [source_of(columns, name, view) for name, view in views.items()]
        # An int shift has no axis of its own.
        self._offsets = [
            np.array(source.view.offsets if source.view.has_window else source.view.offsets[0], np.int64)
            for source in self._sources
        ]
        self._pool = Pool()

    def present(self, arrays: Mapping[str, NDArray[Any]], newest: NDArray[np.int64]) -> dict[str, Any]:
        """Returns the views of some rows, `[B, ...]` or `[B, W, ...]`.

        Args:
            arrays: by column.
            newest: int64[B], rows with at least `look_back` rows of their trajectories before them.
        """
        out: dict[str, Any] = {}
        for source, offsets in zip(self._sources, self._offsets, strict=True):
            rows = newest[:, None] + offsets if offsets.ndim else newest + offsets
            leaves = {
                leaf: gather(arrays[column], [rows], self._pool)[0] for leaf, column in source.columns.items()
            }
            out[source.name] = leaves[""] if source.build is None else source.build(leaves)
            if source.view.mask:
                out[f"{source.name}_mask"] = np.ones(rows.shape, np.bool_)
        return out
