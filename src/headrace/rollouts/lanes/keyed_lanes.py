"""Lanes of a policy whose steps go one by one through a user's `SampleCollector`."""

# Rules: views-rollouts C3

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.lanes.others import Others
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.lanes.rows import Lanes
from headrace.rollouts.lanes.sample_collector import SampleCollector
from headrace.rollouts.pieces import Piece, PieceRows, SampleKey
from headrace.spec import ArraySpec, Signature
from headrace.views import View
from headrace.views.promised import column_of

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

    The lanes themselves hold the bookkeeping.

    Args:
        make_collector: called with the views and `max_seq_len`, once.
        arguments, options: of `PolicyLanes`.
    """

    def __init__(self, make_collector: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "shows_all": True})
        self._make_collector = make_collector
        self._collector: Any = None
        self._shown: dict[str, View] = {}
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
        self._keys[piece.lane] = piece.key
        row = int(self.rows.newest[piece.lane])
        self._collector.add_first(piece.key, self._tree_at("observation", row), env_t=self._env_t(piece))

    def completed(self, piece: Piece, *, is_observed: bool = True) -> None:
        """Hands a step to the collector."""
        row = int(self.rows.newest[piece.lane])
        names = [name for name in self._tree if name not in ("observation", *self.asked, *self._stored)]
        values = {name: self._tree_at(name, row - 1) for name in names}
        if is_observed:
            values["observation"] = self._tree_at("observation", row)
        self._collector.add_step(piece.key, values, env_t=self._env_t(piece))

    def closed(self, piece: Piece, *, is_end: bool) -> None:
        """Takes the rows of the piece from the collector."""
        piece.batch = self._collector.cut(piece.key, end=is_end)

    def dropped(self, piece: Piece) -> None:
        """Ends the trajectory in the collector; its rows are not used."""
        self._collector.cut(piece.key, end=True)

    def present(
        self,
        pieces: Sequence[Piece],
        others: Others | None,  # noqa: ARG002 - a collector knows its own agents only
    ) -> tuple[SampleBatch, list[int]]:
        """Returns the rows that the collector gave for some pieces, with their bookkeeping."""
        batches = [self._with_bookkeeping(piece) for piece in pieces]
        bounds = [0, *np.cumsum([batch.count for batch in batches]).tolist()]
        return SampleBatch.concat(batches), bounds

    def _with_bookkeeping(self, piece: Piece) -> SampleBatch:
        """Returns the rows of one piece; a collector may have left out some, whose numbers are then its own."""
        batch: SampleBatch | None = piece.batch
        if batch is None:
            return SampleBatch({})
        numbers = self._bookkeeping([piece], PieceRows.of([piece], self.rows.first_rows))
        for name, column in numbers.items():
            if len(column) == batch.count:
                batch[name] = column
            elif name not in batch.data:
                batch[name] = np.full(batch.count, column[0])
        return batch

    def _input_dict(self, lanes: Lanes, *_: Any) -> dict[str, Any]:
        found: dict[str, Any] = self._collector.input_dict([self._keys[lane] for lane in lanes.tolist()])
        return found

    def _replan(self) -> None:
        super()._replan()
        # The collector holds this very dict, so that a change of the views reaches it.
        self._shown.clear()
        self._shown.update(self._with_spaces())

    def _with_spaces(self) -> dict[str, View]:
        """Returns the views with the spaces of their columns, where they are single arrays."""
        found = {}
        for name, view in self.views.items():
            spec = self._tree.get(column_of(name, view))
            is_whole = view.data_col in (None, column_of(name, view))
            is_single = isinstance(spec, ArraySpec)
            found[name] = view.replace(space=spec) if is_whole and is_single and view.space is None else view
        return found

    def _tree_at(self, name: str, row: int) -> Any:
        signature = Signature({name: self._tree[name]})
        return signature.unflatten(
            {column: self.rows.arrays[column][row].copy() for column in signature.columns}
        )[name]

    def _env_t(self, piece: Piece) -> int:
        if "env_t" in self._stored:
            return int(self.rows.arrays["env_t"][self.rows.newest[piece.lane]])
        return piece.t + self.rows.place(piece.lane) - piece.first
