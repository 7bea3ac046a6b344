"""Presents the views of one policy from its lanes: to the policy before it acts, and as columns of a batch."""

# Rules: views-rollouts P2, R9, V8, V10, V14, V15

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.rollouts.columns import BOOKKEEPING, NUMBER, POLICY_VERSION, source_of, sources_of
from headrace.rollouts.lane_rows import LaneRows, Lanes
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.array_rows import ArrayPlan, Segments
from headrace.views.causality import acting_views, look_back
from headrace.views.columns import Columns

_OBSERVATION_ALONE = {"observation": View()}


class Presenter:
    """Plans the views of one policy over the columns of its lanes.

    Args:
        views: all views, the base columns included.
        tree: specs of the known columns, a tree for each name.
        may_grow: whether the policy may still add columns with its first call.
        shown: names of the views that `present` shows.

    Attributes:
        look_back: number of rows before a row that the views read.
        asked: bookkeeping columns that views show, which lanes must therefore hold.

    Raises:
        SpecError: a view of an unknown column, also of one that the policy may add, where a policy that acts needs its
            spec before its first call.
        TypeError, ValueError: as `views.apply`.
    """

    def __init__(
        self, views: Mapping[str, View], tree: Mapping[str, Any], *, may_grow: bool, shown: Container[str]
    ) -> None:
        self._views = dict(views)
        self._acting_views = acting_views(views)
        self._shown = {name: view for name, view in views.items() if name in shown}
        self.look_back = look_back(views.values())
        self.asked = tuple(name for name in (*BOOKKEEPING, POLICY_VERSION) if name in sources_of(views))
        self._tree = {**tree, **dict.fromkeys(self.asked, NUMBER)}
        unknown = self._unknown()
        known = {name: view for name, view in views.items() if name not in unknown}
        if unknown and not may_grow:
            known = self._views
        self._tree |= {
            source_of(name, view): _spec_of(view)
            for name, view in unknown.items()
            if name in self._acting_views and view.space is not None
        }
        ArrayPlan(self._columns(), known)
        self._check_spaces(unknown)
        self._acting = ArrayPlan(self._columns(), self._acting_views)
        self._training: ArrayPlan | None = None
        self._shows_observation_alone = self._acting_views == _OBSERVATION_ALONE
        self._observed = Signature({"observation": self._tree["observation"]})

    @property
    def columns(self) -> Mapping[str, ArraySpec]:
        """Specs of the columns that lanes must hold."""
        return Signature(self._tree).columns

    def input_dict(self, rows: LaneRows, lanes: Lanes) -> dict[str, Any]:
        """Presents what the policy may see now in some lanes, `[B, ...]`."""
        newest = rows.newest[lanes]
        if self._shows_observation_alone:
            observed = {name: rows.arrays[name][newest] for name in self._observed.columns}
            return self._observed.unflatten(observed)  # type: ignore[no-any-return]
        segments = Segments(newest, rows.begins[lanes], newest + 1, newest, np.zeros_like(newest))
        return self._acting.present(rows.arrays, segments)

    def present(self, arrays: Mapping[str, NDArray[Any]], segments: Segments) -> dict[str, Any]:
        """Presents the shown views of some rows.

        Raises:
            SpecError: a view of a column that the policy did not return.
        """
        if self._training is None:
            self._training = ArrayPlan(self._columns(), self._shown)
        return self._training.present(arrays, segments)

    def _columns(self) -> Columns:
        return Columns(Signature(self._tree), {})

    def _unknown(self) -> dict[str, View]:
        """Returns the views of columns that are not known yet."""
        return {name: view for name, view in self._views.items() if source_of(name, view) not in self._tree}

    def _check_spaces(self, unknown: Mapping[str, View]) -> None:
        for name, view in unknown.items():
            if name in self._acting_views and view.space is None:
                raise SpecError(
                    f"view {name!r}: no column {view.data_col or name!r}; there are {', '.join(self._tree)}. The "
                    "policy reads this view before its first call: if it returns this column, give the view a space"
                )


def _spec_of(view: View) -> Any:
    space = view.space
    return space if isinstance(space, ArraySpec) else Signature.of_space(space).tree
