"""Presents the views of one policy from its lanes: to the policy before it acts, and as columns of a batch."""

# Rules: views-rollouts P2, R9, V8, V10, V14, V15, M9

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.rollouts.columns import BOOKKEEPING, INFO, NUMBER, OUTCOME, POLICY_VERSION, agents_of
from headrace.rollouts.lanes.rows import LaneRows, Lanes
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.arrays.newest import NewestRows
from headrace.views.arrays.rows import ArrayPlan, Segments
from headrace.views.causality import acting_views, look_back
from headrace.views.columns import Columns
from headrace.views.other_agents import Beside
from headrace.views.promised import (
    check_promised,
    column_of,
    columns_shown,
    promised_specs,
    unknown_views,
    with_promised,
)

_OBSERVATION_ALONE = {"observation": View()}


class Presenter:
    """Plans the views of one policy over the columns of its lanes.

    Args:
        views: all views, the base columns included.
        tree: specs of the known columns, a tree for each name.
        may_grow: whether the policy may still add columns with its first call.
        shown: names of the views that `present` shows.
        columns_of: columns of the other agents by id, for views of them; None: there is one agent.

    Attributes:
        look_back: number of rows before a row that the views read.
        asked: bookkeeping columns that views show, which lanes must therefore hold.
        acts_on_others: whether the policy sees views of other agents.
        shows_others: whether batches have views of other agents.

    Raises:
        SpecError: a view of an unknown column, also of one that the policy may add, where a policy that acts needs its
            spec before its first call.
        TypeError, ValueError: as `views.apply`.
    """

    def __init__(
        self,
        views: Mapping[str, View],
        tree: Mapping[str, Any],
        *,
        may_grow: bool,
        shown: Container[str],
        columns_of: Mapping[Any, Columns] | None = None,
    ) -> None:
        acting = acting_views(views)
        unknown = unknown_views(views, (*tree, *BOOKKEEPING)) if may_grow else {}
        unknown |= _unknown_infos(views, tree)
        unknown |= _unknown_of_others(views, columns_of or {})
        seen_unknown = {name: view for name, view in unknown.items() if name in acting}
        self._columns_of = columns_of
        self.look_back = look_back(views.values())
        self.asked = tuple(name for name in (*BOOKKEEPING, POLICY_VERSION) if name in columns_shown(views))
        own_unknown = {name: view for name, view in seen_unknown.items() if view.agent is None}
        self._tree = with_promised({**tree, **dict.fromkeys(self.asked, NUMBER)}, promised_specs(own_unknown))
        self._plan({name: view for name, view in views.items() if name not in unknown})
        check_promised(seen_unknown, self._tree)
        self.acts_on_others = any(view.agent is not None for view in acting.values())
        self._acting = None if self.acts_on_others else NewestRows(Columns(Signature(self._tree), {}), acting)
        self._acting_on_others = self._plan(acting) if self.acts_on_others else None
        self._seen = acting
        self._shown = {name: view for name, view in views.items() if name in shown}
        self._training: tuple[ArrayPlan, ArrayPlan] | None = None
        self.shows_others = any(view.agent is not None for view in self._shown.values())
        self._shows_observation_alone = acting == _OBSERVATION_ALONE
        self._observed = Signature({"observation": self._tree["observation"]})
        self._observed_columns = tuple(self._observed.columns)
        self._is_bare = isinstance(self._tree["observation"], ArraySpec)

    @property
    def columns(self) -> Mapping[str, ArraySpec]:
        """Specs of the columns that lanes must hold."""
        return Signature(self._tree).columns

    def input_dict(self, rows: LaneRows, lanes: Lanes, beside: Beside | None = None) -> dict[str, Any]:
        """Presents what the policy may see now in some lanes, `[B, ...]`.

        Args:
            rows: of the policy.
            lanes: B lanes.
            beside: the other agents, if the policy sees views of them.
        """
        newest = rows.rows_of(lanes)
        if self._shows_observation_alone:
            observed = {name: rows.arrays[name].take(newest, 0) for name in self._observed_columns}
            return observed if self._is_bare else self._observed.unflatten(observed)
        begins = rows.begins if lanes is rows.all_lanes else rows.begins[lanes]
        if self._acting is not None and not rows.late:
            return self._acting.present(rows.arrays, newest, newest - begins)
        segments = Segments(newest, begins, newest + 1, newest, np.zeros_like(newest))
        if self._acting is not None:
            seen = self._acting.present(rows.arrays, newest, newest - begins)
        else:
            assert self._acting_on_others is not None
            seen = self._acting_on_others.present(rows.arrays, segments, beside)
        return seen | self._late(self._seen, rows.arrays, segments, rows.late_at(newest))

    def present(
        self,
        arrays: Mapping[str, NDArray[Any]],
        segments: Segments,
        beside: Beside | None,
        completed: Beside | None,
        late: Mapping[str, NDArray[np.int64]],
    ) -> dict[str, Any]:
        """Presents the shown views of some rows.

        Args:
            arrays: of the policy.
            segments: the rows.
            beside: the other agents, if there are views of them, with the actions of steps that are still open.
            completed: the other agents without open steps, for their rewards and flags.
            late: the first recorded row in the lane of each row, of columns that were added within trajectories.

        Raises:
            SpecError: a view of a column that the policy did not return.
        """
        if self._training is None:
            of_outcomes = {
                name: view
                for name, view in self._shown.items()
                if view.agent is not None and column_of(name, view) in OUTCOME
            }
            others = {name: view for name, view in self._shown.items() if name not in of_outcomes}
            self._training = self._plan(others), self._plan(of_outcomes)
        plan, outcomes = self._training
        shown = plan.present(arrays, segments, beside) | self._late(self._shown, arrays, segments, late)
        return {**shown, **outcomes.present(arrays, segments, completed)} if self.shows_others else shown

    def _late(
        self,
        views: Mapping[str, View],
        arrays: Mapping[str, NDArray[Any]],
        segments: Segments,
        late: Mapping[str, NDArray[np.int64]],
    ) -> dict[str, Any]:
        """Presents the views that show late columns: nothing is known before their first recorded rows."""
        shown: dict[str, Any] = {}
        for name, view in views.items():
            firsts = [first for column, first in late.items() if _shows(name, view, column)]
            if firsts:
                begins = np.maximum.reduce([segments.begins, *firsts])
                shown |= self._plan({name: view}).present(arrays, segments._replace(begins=begins))
        return shown

    def _plan(self, views: Mapping[str, View]) -> ArrayPlan:
        return ArrayPlan(Columns(Signature(self._tree), {}), views, self._columns_of)


def _unknown_of_others(views: Mapping[str, View], columns_of: Mapping[Any, Columns]) -> dict[str, View]:
    """Returns the views of columns of other agents that their policies may add later."""
    return {
        name: view
        for name, view in views.items()
        if any(
            agent in columns_of and column_of(name, view) not in columns_of[agent].signature.tree
            for agent in agents_of(view)
        )
    }


def _unknown_infos(views: Mapping[str, View], tree: Mapping[str, Any]) -> dict[str, View]:
    """Returns the views of entries of `info` that are not known yet, unlike other entries of it."""
    if not isinstance(tree.get(INFO), dict):
        return {}
    known = Signature({INFO: tree[INFO]}).columns
    return {
        name: view
        for name, view in views.items()
        if view.agent is None
        and column_of(name, view) == INFO
        and not any(_shows(name, view, column) for column in known)
    }


def _shows(name: str, view: View, column: str) -> bool:
    """Whether a view shows a column, alone or as a part of a tree."""
    return view.agent is None and f"{column}/".startswith(f"{view.data_col or name}/")
