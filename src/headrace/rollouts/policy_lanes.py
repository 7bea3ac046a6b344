"""One policy of a worker with the lanes of the agents for which it acts."""

# Rules: views-rollouts P1 to P3, R9 to R11, R16

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.sample_batch import SampleBatch
from headrace.policies import (
    CheckedPolicy,
    Decision,
    actions_alone,
    form_of,
    initial_state_of,
    state_out_columns,
)
from headrace.rollouts.columns import (
    BOOKKEEPING,
    NUMBER,
    OUTCOME,
    POLICY_VERSION,
    base_views,
    reserved_names,
)
from headrace.rollouts.lane_rows import LaneRows, Lanes
from headrace.rollouts.pieces import Piece, PieceRows
from headrace.rollouts.presenter import Presenter
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.plan import check_views


class PolicyLanes:
    """Acts for the agents of one policy and keeps their rows until a fragment is cut.

    Args:
        policy_id: names the policy in messages.
        policy: of any form (`headrace.policies.form_of`).
        observed: `Signature({"observation": ...})`.
        acted: `Signature({"action": ...})`.
        lanes: number of lanes to begin with.
        max_seq_len: rows of the longest sequence; None: no sequences.
        stored_env_t: whether lanes hold `env_t`, because it differs from `t`.
        shows_all: whether batches also have views that are not used for training, for postprocessing.

    Attributes:
        rows: the rows.
        views: the views as they are now, base columns included.
        unused: names of views that training does not use, whatever they say.
    """

    def __init__(
        self,
        policy_id: str,
        policy: Any,
        observed: Signature,
        acted: Signature,
        *,
        lanes: int,
        max_seq_len: int | None,
        stored_env_t: bool,
        shows_all: bool,
    ) -> None:
        initial = initial_state_of(policy)
        self.policy_id, self.policy = policy_id, policy
        self._checked = CheckedPolicy(
            form_of(policy, acted, actions_alone),
            acted,
            initial,
            name=f"policy {policy_id!r}",
            reserved=reserved_names(len(initial)),
        )
        self._max_seq_len = max_seq_len
        self._base = base_views(initial, max_seq_len or 1)
        self._tree: dict[str, Any] = {**observed.tree, **acted.tree, **OUTCOME}
        for i, state in enumerate(initial):
            self._tree[f"state_out_{i}"] = ArraySpec(state.shape, state.dtype)
        self._stored: tuple[str, ...] = ("env_t",) if stored_env_t else ()
        if hasattr(policy, "version"):
            self._stored += (POLICY_VERSION,)
        self._tree |= dict.fromkeys(self._stored, NUMBER)
        self._may_grow = callable(getattr(policy, "compute_actions", None))
        self._shows_all = shows_all
        self._given: Mapping[str, View] = {}
        self.unused: frozenset[str] = frozenset()
        self.views: dict[str, View] = {}
        self._presenter = self._plan()
        self.rows = LaneRows(self._presenter.columns, lanes)

    @property
    def asked(self) -> Sequence[str]:
        """Bookkeeping columns that the lanes hold, because views show them."""
        return self._presenter.asked

    @property
    def shows_info(self) -> bool:
        """Whether a view shows what the environment returned as `info`."""
        return False

    def use(self, worker_views: Mapping[str, View]) -> None:
        """Takes over the views of the worker and the policy, if they have changed.

        Raises:
            SpecError, TypeError, ValueError: a view that cannot be shown; the earlier views stay.
        """
        given = {**worker_views, **(getattr(self.policy, "views", None) or {})}
        if given != self._given:
            self._check(given)
            before, self._given = self._given, given
            try:
                self._replan()
            except Exception:
                self._given = before
                raise

    def act(self, lanes: Lanes) -> Decision:
        """Asks the policy for the actions in some lanes. Nothing is recorded."""
        decision = self._checked(self._presenter.input_dict(self.rows, lanes), len(lanes))
        if self._may_grow:
            self._may_grow = False
            if self._checked.extras:
                self._tree |= self._checked.extras
                self._replan()
        return decision

    def record_actions(self, lanes: Lanes, decision: Decision) -> None:
        """Writes what the policy did into the newest rows of some lanes."""
        rows = self.rows.newest[lanes]
        self.rows.write(rows, decision.actions)
        if decision.state_outs:
            self.rows.write(rows, state_out_columns(decision.state_outs))
        if decision.extras:
            self.rows.write(rows, decision.extras)
        if POLICY_VERSION in self._stored:
            self.rows.arrays[POLICY_VERSION][rows] = int(self.policy.version)

    def present(self, pieces: Sequence[Piece]) -> tuple[SampleBatch, list[int]]:
        """Returns the rows of some pieces as one batch, and the bounds of the pieces in it.

        Raises:
            SpecError: a view of a column that there is not.
        """
        rows = PieceRows.of(pieces, self.rows.first_rows)
        columns = self._presenter.present(self.rows.arrays, rows.segments)
        columns |= rows.bookkeeping(pieces)
        columns |= {name: self.rows.arrays[name][rows.segments.rows] for name in self._stored}
        longest = self._max_seq_len
        lengths = None if longest is None else rows.sequence_lengths(longest)
        return SampleBatch(columns, seq_lens=lengths, max_seq_len=longest), rows.bounds

    def forget(self, lanes: Lanes) -> NDArray[np.int64]:
        """Forgets the rows that no view reads any more; see `LaneRows.forget`."""
        return self.rows.forget(lanes, self._presenter.look_back)

    def for_training(self, batch: SampleBatch) -> SampleBatch:
        """Removes the views that training does not use, and returns the batch."""
        if self._shows_all:
            for name in self._not_for_training():
                for column in (name, f"{name}_mask"):
                    if column in batch.data and (column == name or self.views[name].mask):
                        del batch[column]
        return batch

    def _not_for_training(self) -> set[str]:
        return {
            name for name, view in self.views.items() if name in self.unused or not view.used_for_training
        }

    def _check(self, views: Mapping[str, View]) -> None:
        check_views(views)
        for name, view in views.items():
            if name in BOOKKEEPING or name == POLICY_VERSION:
                raise ValueError(f"view {name!r}: expected a name that no bookkeeping column has")
            if view.every not in (1, self._max_seq_len):
                raise ValueError(
                    f"view {name!r}: every: expected 1 or max_seq_len={self._max_seq_len}, got {view.every}"
                )

    def _plan(self) -> Presenter:
        extras = {name: View() for name in self._checked.extras}
        self.views = {**self._base, **extras, **self._given}
        shown = self.views.keys() if self._shows_all else self.views.keys() - self._not_for_training()
        return Presenter(self.views, self._tree, may_grow=self._may_grow, shown=shown)

    def _replan(self) -> None:
        self._presenter = self._plan()
        held = self.rows.arrays
        self.rows.add_columns(
            {
                name: spec
                for name, spec in self._presenter.columns.items()
                if name not in held or ArraySpec(held[name].shape[1:], held[name].dtype) != spec
            }
        )
