"""Where the values of a column of a batch come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.views import TransitionView, View
from headrace.views.columns import is_pre_by_name
from headrace.views.explanation import Shown


def shown_columns(
    columns: Mapping[str, Any], index: tuple[np.intp, ...], views: Mapping[str, View]
) -> dict[str, Shown]:
    """Returns the source of each column at one element; views of n-step transitions are left out.

    Args:
        columns: `[N, T, ...]` or `[frames, ...]`.
        index: of the element.
        views: maps names of columns to the views that they show.
    """
    t, shape = np.asarray(columns["t"]), np.shape(columns["mask"])
    row = np.asarray(np.ravel_multi_index(index, shape))
    masks = {
        f"{name}_mask": view.replace(data_col=view.data_col or name)
        for name, view in views.items()
        if view.mask
    }
    shown = {}
    for name in columns:
        view = {**masks, **views}.get(name)
        if view is None and name == "next_observation":
            shown[name] = Shown(("observation",), row, t[index] + 1)
        elif view is None:
            shown[name] = Shown((name,), row, t[index])
        elif not isinstance(view, TransitionView):
            offsets = np.asarray(view.offsets if view.has_window else view.shift)
            rows, steps = _rows_at(columns, index, offsets, is_pre=is_pre_by_name(view.data_col or name))
            shown[name] = Shown((view.data_col or name,), rows, steps)
    return shown


def _rows_at(
    columns: Mapping[str, Any], index: tuple[np.intp, ...], offsets: NDArray[np.int64], *, is_pre: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows at offsets from an element, -1 outside the batch, and their steps, -1 for the fill."""
    lane, place = index[:-1], index[-1]
    t, ids = np.asarray(columns["t"])[lane], np.asarray(columns["episode_id"])[lane]
    steps = t[place] + offsets

    def is_there(places: NDArray[np.int64]) -> NDArray[np.bool_]:
        inside = places.clip(0, len(t) - 1)
        known = (inside == places) & (ids[inside] == ids[place])
        found: NDArray[np.bool_] = known & (t[inside] - t[place] == places - place)
        return found

    there = is_there(place + offsets)
    # The observation after the newest step is known, and so is every step before the first of the batch.
    known = there | (is_pre & is_there(place + offsets - 1)) | ((offsets < 0) & (steps >= 0))
    first = place - np.ravel_multi_index(index, np.shape(columns["mask"]))
    return np.where(there, place + offsets - first, -1), np.where(known, steps, -1)
