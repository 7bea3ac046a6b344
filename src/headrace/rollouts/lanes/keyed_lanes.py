"""Lanes of a policy whose steps go one by one through a user's `SampleCollector`."""

# Rules: views-rollouts C3, H2, M9

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.batches.sample_batch import SampleBatch
from headrace.errors import SpecError
from headrace.rollouts.columns import BOOKKEEPING, CLOCK, POLICY_VERSION
from headrace.rollouts.lanes.others import Others
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.lanes.rows import Lanes
from headrace.rollouts.lanes.sample_collector import SampleCollector
from headrace.rollouts.pieces import Piece, PieceRows, SampleKey
from headrace.spec import Signature
from headrace.trees import at_path
from headrace.views import View
from headrace.views.arrays.rows import Segments
from headrace.views.causality import acting_views
from headrace.views.other_agents import Beside
from headrace.views.promised import column_of

_log = logging.getLogger(__name__)

METHODS = ("add_first", "add_step", "input_dict", "cut")


def takes_steps(sample_collector: Any) -> bool:
    """Whether a user's collector has a method of its own that is called for each step.

    >>> takes_steps(SampleCollector)
    False
    """
    return sample_collector is not None and any(
        getattr(sample_collector, name, None) is not getattr(SampleCollector, name) for name in METHODS
    )


class KeyedLanes(PolicyLanes):
    """Lanes that hand each step to a collector, and take views and batches from it.

    The lanes themselves hold the bookkeeping, and present the views of it and of other agents.

    Args:
        make_collector: called with the views and `max_seq_len`, once.
        arguments, options: of `PolicyLanes`.
    """

    def __init__(self, make_collector: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "shows_all": True})
        self._make_collector = make_collector
        self._collector: Any = None
        # The views that the collector presents.
        self._shown: dict[str, View] = {}
        self._plan_own()
        self._keys: dict[int, SampleKey] = {}

    @property
    def is_keyed(self) -> bool:
        """True."""
        return True

    def opened(self, piece: Piece) -> None:
        """Begins a trajectory in the collector."""
        if self._collector is None:
            self._shown.update(self._with_spaces())
            self._collector = self._make_collector(self._shown, max_seq_len=self._max_seq_len)
        self._add_first(piece, self._env_t(piece))

    def completed(self, piece: Piece, *, is_observed: bool = True) -> None:
        """Hands a step to the collector."""
        row = int(self.rows.newest[piece.lane])
        names = [name for name in self._tree if name not in ("observation", *self.asked, *self._stored)]
        values = {name: self._tree_at(name, row - 1) for name in names}
        if is_observed:
            values["observation"] = self._tree_at("observation", row)
        self._collector.add_step(piece.key, values, env_t=self._env_t(piece))

    def closed(self, piece: Piece, *, is_end: bool) -> None:
        """Takes the rows of the piece from the collector.

        An error of the collector is kept in the piece, so that the steps of other trajectories are recorded before it
        is raised. As the state of the collector is not known then, it forgets the trajectory. One that has not ended
        begins again with its newest observation, and looks back on nothing from before.
        """
        try:
            piece.batch = self._collector.cut(piece.key, end=is_end)
        except Exception as error:
            piece.error = error
            self._forget(piece)
            if not is_end:
                self._add_first(piece, self._env_t(piece))

    def continued(self, piece: Piece, later: Piece) -> None:
        """Begins the next trajectory before this one ends, so that the collector sees that it goes on."""
        # Rules: views-rollouts H2
        self._add_first(later, env_t=0)
        self.closed(piece, is_end=True)

    def dropped(self, piece: Piece) -> None:
        """Ends the trajectory in the collector; its rows are not used."""
        self._forget(piece)

    def _forget(self, piece: Piece) -> None:
        try:
            self._collector.cut(piece.key, end=True)
        except Exception as error:  # Of rows that nothing uses; other trajectories go on.
            _log.debug("sample_collector: cut of %s, whose rows are dropped: %s", piece.key, error)

    def present(self, pieces: Sequence[Piece], others: Others | None) -> tuple[SampleBatch, list[int]]:
        """Returns the rows that the collector gave for some pieces, with bookkeeping and the lanes' own views.

        Raises:
            SpecError: the lanes have views of their own, and the collector gave rows that are at no environment step
                of the piece.
        """
        batches = [self._completed_batch(piece, others) for piece in pieces]
        bounds = [0, *np.cumsum([batch.count for batch in batches]).tolist()]
        return SampleBatch.concat(batches), bounds

    def _completed_batch(self, piece: Piece, others: Others | None) -> SampleBatch:
        """Returns the rows of one piece; a collector may have left out some, whose numbers are then its own."""
        if piece.error is not None:
            raise piece.error
        batch: SampleBatch | None = piece.batch
        if batch is None:
            return SampleBatch({})
        rows = PieceRows.of([piece], self.rows.first_rows)
        numbers = self._bookkeeping([piece], rows)
        if self._own_views:
            segments = _rows_at(rows.segments, numbers["env_t"], batch)
            beside = completed = None
            if others is not None and self._own.shows_others:
                clock = self.rows.arrays[CLOCK][segments.rows]
                beside, completed = others.beside_pieces([piece], np.array([batch.count]), clock)
            shown = self._own.present(self.rows.arrays, segments, beside, completed, {})
            batch.data.update(shown)
        for name, column in numbers.items():
            if len(column) == batch.count:
                batch[name] = column
            elif name not in batch.data:
                batch[name] = np.full(batch.count, column[0])
        return batch

    def _add_first(self, piece: Piece, env_t: int) -> None:
        self._keys[piece.lane] = piece.key
        row = int(self.rows.newest[piece.lane])
        self._collector.add_first(piece.key, self._tree_at("observation", row), env_t=env_t)

    def _input_dict(self, lanes: Lanes, beside: Beside | None) -> dict[str, Any]:
        found: dict[str, Any] = self._collector.input_dict([self._keys[lane] for lane in lanes.tolist()])
        if self._own_acts:
            found = {**found, **self._own.input_dict(self.rows, lanes, beside)}
        return found

    def _replan(self) -> None:
        super()._replan()
        self._plan_own()
        # The collector holds this very dict, so that a change of the views reaches it.
        self._shown.clear()
        self._shown.update(self._with_spaces())

    def _plan_own(self) -> None:
        """Plans the views of other agents and of bookkeeping, which a collector does not know."""
        self._own_views = {name: view for name, view in self.views.items() if _is_own(name, view)}
        self._own_acts = bool(acting_views(self._own_views))
        self._own = self._presenter_of(self._own_views, self._own_views)

    def _with_spaces(self) -> dict[str, View]:
        """Returns the views of the collector with the spaces of their columns, where these are known."""
        found = {}
        for name, view in self.views.items():
            if _is_own(name, view):
                continue
            spec = self._spec_at(view.data_col or name)
            found[name] = view if spec is None else view.replace(space=Signature(spec))
        return found

    def _spec_at(self, path: str) -> Any:
        """Returns the tree of specs at a path; None: not known yet."""
        try:
            return at_path(self._tree, path)
        except KeyError:
            return None

    def _tree_at(self, name: str, row: int) -> Any:
        signature = Signature({name: self._tree[name]})
        return signature.unflatten(
            {column: self.rows.arrays[column][row].copy() for column in signature.columns}
        )[name]

    def _env_t(self, piece: Piece) -> int:
        if "env_t" in self._stored:
            return int(self.rows.arrays["env_t"][self.rows.newest[piece.lane]])
        return piece.t + self.rows.place(piece.lane) - piece.first


def _is_own(name: str, view: View) -> bool:
    """Whether the lanes present a view, and the collector does not."""
    return view.agent is not None or column_of(name, view) in (*BOOKKEEPING, POLICY_VERSION)


def _rows_at(segments: Segments, env_t: NDArray[np.int64], batch: SampleBatch) -> Segments:
    """Returns the rows of a piece that are in a batch, found by their environment steps if it has left out some."""
    if len(env_t) == batch.count:
        return segments
    wanted = np.asarray(batch["env_t"]) if "env_t" in batch else np.zeros(0, np.int64)
    found = np.searchsorted(env_t, wanted)
    if len(found) != batch.count or not np.isin(wanted, env_t).all():
        raise SpecError(
            f"sample_collector: cut: views of other agents and of bookkeeping need a column env_t with the environment "
            f"step of each row; expected {batch.count} of {env_t.tolist()}, got {wanted.tolist()}"
        )
    kept = Segments(*(numbers[found] for numbers in segments))
    return kept._replace(places=np.arange(batch.count))
