"""One policy of a worker with the lanes of the agents for which it acts."""

# Rules: views-rollouts P1 to P3, R9 to R11, R16

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

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
    CLOCK,
    INFO,
    NUMBER,
    OUTCOME,
    POLICY_VERSION,
    base_views,
    reserved_names,
)
from headrace.rollouts.lanes.infos import InfoEntries
from headrace.rollouts.lanes.others import Others
from headrace.rollouts.lanes.presenter import Presenter
from headrace.rollouts.lanes.rows import LaneRows, Lanes
from headrace.rollouts.pieces import Piece, PieceRows
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.columns import Columns
from headrace.views.other_agents import Beside
from headrace.views.view import check_views


class PolicyLanes:
    """Acts for the agents of one policy and keeps their rows until a fragment is cut.

    Args:
        policy_id: names the policy in messages.
        policy: of any form (`headrace.policies.form_of`).
        observed: `Signature({"observation": ...})`.
        acted: `Signature({"action": ...})`.
        lanes: number of lanes to begin with.
        max_seq_len: rows of the longest sequence; None: no sequences.
        stored_env_t: whether lanes hold `env_t`, because it differs from `t`, and the environment's clock.
        shows_all: whether batches also have views that are not used for training, for postprocessing.

    Attributes:
        rows: the rows.
        views: the views as they are now, base columns included.
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
        self._unused: dict[str, View] = {}
        self.views: dict[str, View] = {}
        self._columns_of: Mapping[Any, Columns] | None = None
        self._known_of: dict[Any, Columns] = {}
        self._infos = InfoEntries()
        self._presenter = self._plan()
        clock = {CLOCK: NUMBER} if stored_env_t else {}
        self.rows = LaneRows({**self._presenter.columns, **clock}, lanes)
        self._free = list(range(lanes - 1, -1, -1))

    @property
    def asked(self) -> Sequence[str]:
        """Bookkeeping columns that the lanes hold, because views show them."""
        return self._presenter.asked

    @property
    def shows_info(self) -> bool:
        """Whether a view shows what the environment returned as `info`."""
        return bool(self._infos.wanted)

    @property
    def presenter(self) -> Presenter:
        """The plan of the present views."""
        return self._presenter

    @property
    def columns(self) -> Columns:
        """The columns that are known now."""
        return Columns(Signature(self._tree), {})

    def given_views(self, worker_views: Mapping[str, View]) -> dict[str, View]:
        """Returns the views of the worker and of the policy."""
        return {**worker_views, **(getattr(self.policy, "views", None) or {})}

    def promise(self, specs: Mapping[str, Any]) -> None:
        """Adds columns that the policy may return with its first call, because other policies see them before."""
        if self._may_grow and (new := {name: spec for name, spec in specs.items() if name not in self._tree}):
            self._tree |= new
            self._replan()

    def use(self, worker_views: Mapping[str, View], columns_of: Mapping[Any, Columns] | None = None) -> None:
        """Takes over the views of the worker and the policy, and the columns of other agents, if they have changed.

        Raises:
            SpecError, TypeError, ValueError: a view that cannot be shown; the earlier views stay.
        """
        given = self.given_views(worker_views)
        known = dict(columns_of or {})
        if given != self._given or known != self._known_of:
            self._check(given)
            before = self._given, self._columns_of, self._known_of
            self._given, self._columns_of, self._known_of = given, columns_of, known
            try:
                self._replan()
            except Exception:
                self._given, self._columns_of, self._known_of = before
                self._replan()
                raise

    def act(self, lanes: Lanes, beside: Beside | None = None) -> Decision:
        """Asks the policy for the actions in some lanes. Nothing is recorded.

        Args:
            lanes: the lanes.
            beside: the other agents, if the policy sees views of them.
        """
        decision = self._checked(self._input_dict(lanes, beside), len(lanes))
        if self._may_grow:
            self._may_grow = False
            if self._checked.extras:
                self._tree |= self._checked.extras
                self._replan()
        return decision

    def opened(self, piece: Piece) -> None:
        """Takes note of a piece with the first observation of a trajectory in its lane's newest row."""

    def completed(self, piece: Piece, *, is_observed: bool = True) -> None:
        """Takes note of a step that was completed: the newest row of its lane is the one after it."""

    def closed(self, piece: Piece, *, is_end: bool) -> None:
        """Takes note of the end of a piece, and perhaps of its trajectory."""

    def continued(self, piece: Piece, later: Piece) -> None:
        """Takes note of a piece that ends with its episode, and of the piece of the next one that goes on from it."""

    def dropped(self, piece: Piece) -> None:
        """Takes note of a trajectory whose rows since the last cut are dropped."""

    @property
    def is_keyed(self) -> bool:
        """Whether each step must be noted."""
        return False

    def take_lane(self) -> int:
        """Returns an empty lane, or one whose trajectories have ended."""
        if not self._free:
            self._free = list(range(2 * self.rows.lanes - 1, self.rows.lanes - 1, -1))
            self.rows.add_lanes(self.rows.lanes)
        return self._free.pop()

    def release_lane(self, lane: int) -> None:
        """Gives back a lane whose trajectory has ended. Its rows stay until the next cut."""
        self._free.append(lane)

    def record_actions(self, lanes: Lanes, decision: Decision) -> None:
        """Writes what the policy did into the newest rows of some lanes."""
        rows = self.rows.rows_of(lanes)
        self.rows.write(rows, decision.actions)
        if decision.state_outs:
            self.rows.write(rows, state_out_columns(decision.state_outs))
        if decision.extras:
            self.rows.write(rows, decision.extras)
        if POLICY_VERSION in self._stored:
            self.rows.arrays[POLICY_VERSION][rows] = int(self.policy.version)

    def record_info(self, lane: int, info: Mapping[str, Any], where: str) -> None:
        """Writes the entries of `info` that views show into the newest row of a lane.

        Args:
            lane: the lane.
            info: as the step returned it.
            where: begins the message of an error.

        Raises:
            SpecError: an entry is missing, or of another shape.
        """
        if self._infos.learn(info, where):
            self._replan()
        row = self.rows.newest[lane]
        for name, value in self._infos.values(info, where).items():
            self.rows.arrays[name][row] = value

    def write_history(self, piece: Piece) -> None:
        """Writes the bookkeeping that views show into the kept rows of a running episode: these views are new."""
        # Rules: views-rollouts R9
        base, newest = int(self.rows.first_rows[piece.lane]), self.rows.place(piece.lane)
        # Rows before the first of the episode are of the one before a soft horizon; their numbers are not kept.
        places = np.arange(max(piece.begin, piece.first - piece.t), newest + 1)
        t = piece.t + places - piece.first
        numbers: dict[str, Any] = {**piece.numbers(0), "t": t, "env_t": t}
        for name in self.asked:
            if name in numbers and name not in self._stored:
                self.rows.arrays[name][base + places] = numbers[name]

    def present(self, pieces: Sequence[Piece], others: Others | None) -> tuple[SampleBatch, list[int]]:
        """Returns the rows of some pieces as one batch, and the bounds of the pieces in it.

        Args:
            pieces: of this policy.
            others: finds the other agents beside them; None: there are none.

        Raises:
            SpecError: a view of a column that there is not.
        """
        rows = PieceRows.of(pieces, self.rows.first_rows)
        beside = completed = None
        if others is not None and self._presenter.shows_others:
            clock = self.rows.arrays[CLOCK][rows.segments.rows]
            beside, completed = others.beside_pieces(pieces, rows.counts, clock)
        late = self.rows.late_at(rows.segments.rows)
        columns = self._presenter.present(self.rows.arrays, rows.segments, beside, completed, late)
        columns |= self._bookkeeping(pieces, rows)
        longest = self._max_seq_len
        lengths = None if longest is None else rows.sequence_lengths(longest)
        return SampleBatch(columns, seq_lens=lengths, max_seq_len=longest), rows.bounds

    def _bookkeeping(self, pieces: Sequence[Piece], rows: PieceRows) -> dict[str, Any]:
        stored = {name: self.rows.arrays[name][rows.segments.rows] for name in self._stored}
        return {**rows.bookkeeping(pieces), **stored}

    def for_training(self, batch: SampleBatch) -> SampleBatch:
        """Removes the views that training does not use, and returns the batch."""
        if self._shows_all:
            for name in self._not_for_training():
                for column in self.columns_of_view(name):
                    batch.data.pop(column, None)
        return batch

    def columns_of_view(self, name: str) -> tuple[str, ...]:
        """Returns the names of a view's columns in a batch."""
        return (name, f"{name}_mask") if self.views[name].mask else (name,)

    def leave_out(self, names: Iterable[str]) -> None:
        """Leaves out some views from training batches, as long as they are the same views."""
        self._unused = {name: self.views[name] for name in names}
        self._replan()

    def _input_dict(self, lanes: Lanes, beside: Beside | None) -> dict[str, Any]:
        return self._presenter.input_dict(self.rows, lanes, beside)

    def _not_for_training(self) -> set[str]:
        return {
            name
            for name, view in self.views.items()
            if not view.used_for_training or self._unused.get(name) == view
        }

    def _check(self, views: Mapping[str, View]) -> None:
        check_views(views)
        for name, view in views.items():
            if name in (*BOOKKEEPING, POLICY_VERSION, SampleBatch.SEQ_LENS):
                raise ValueError(f"view {name!r}: expected a name that no bookkeeping column has")
            if view.every not in (1, self._max_seq_len):
                raise ValueError(
                    f"view {name!r}: every: expected 1 or max_seq_len={self._max_seq_len}, got {view.every}"
                )

    def _plan(self) -> Presenter:
        extras = {name: View() for name in self._checked.extras}
        self.views = {**self._base, **extras, **self._given}
        self._infos.use(self.views)
        self._tree = {name: spec for name, spec in self._tree.items() if name != INFO} | self._infos.tree
        shown = self.views.keys() if self._shows_all else self.views.keys() - self._not_for_training()
        known = {name: view for name, view in self.views.items() if name not in self._infos.unknown()}
        return self._presenter_of(known, shown)

    def _presenter_of(self, views: Mapping[str, View], shown: Container[str]) -> Presenter:
        return Presenter(views, self._tree, may_grow=self._may_grow, shown=shown, columns_of=self._columns_of)

    def _replan(self) -> None:
        self._presenter = self._plan()
        # A view that comes back later must not show what an entry was before its view went.
        self.rows.drop(f"{INFO}/", kept=self._presenter.columns)
        self.rows.match(self._presenter.columns, late=f"{INFO}/")
