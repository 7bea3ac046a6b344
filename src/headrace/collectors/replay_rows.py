"""From a finished rollout to rows of a replay, in this process."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.rollout import RolloutBuffer
from headrace.errors import Closed, DeadlineExceeded
from headrace.replay.public import core_of
from headrace.spec import Signature
from headrace.tables.description.rules import ItemRule


class ReplayRows:
    """Writes rollouts into a replay, lane by lane, with a final row at every end of an episode.

    Args:
        replay: in this process.
        num_envs: lanes.
        observed: names of the columns that an observation has.
        rules: which items the rows become.
    """

    def __init__(
        self, replay: Any, num_envs: int, observed: frozenset[str], rules: Sequence[ItemRule]
    ) -> None:
        self._signature: Signature = replay.signature
        self._observed = [name for name in self._signature.columns if name in observed]
        self._single = num_envs == 1
        # What nobody gives: extras of the policy while actions are random (collectors CR4).
        self._row: dict[str, NDArray[Any]] = {
            name: np.zeros((num_envs, *spec.shape), spec.dtype)
            for name, spec in self._signature.columns.items()
        }
        self._open = np.zeros(num_envs, np.bool_)
        # What followed the rollout that was written last: columns [n, ...]. None while a rollout is being written.
        self._following: dict[str, NDArray[Any]] | None = {}
        self._writer = core_of(replay).writer(lanes=num_envs, items=rules)

    def write(self, buffer: RolloutBuffer) -> int:
        """Append every step of a full rollout.

        Raises:
            StoreFull: some steps may be stored; `cut` before the next rollout.
        """
        self._following = None
        finals = buffer.finals_by_step()
        given = [name for name in self._row if name in buffer.columns]
        for step in range(buffer.steps):
            row = {**self._row, **{name: buffer.columns[name][step] for name in given}}
            self._writer.policy_version = int(buffer.versions[step])
            masked = buffer.masked[step]
            if masked.any():
                # The reset step of an environment that resets itself: this row is the final row of the old episode.
                self._append_marked(row, masked)
            else:
                self._append(row)
            np.logical_not(masked, out=self._open)
            if step in finals:
                copies, places = finals[step]
                values = {name: buffer.finals[name][places] for name in self._observed}
                self._writer.end_lanes(copies, values)
                self._open[copies] = False
        self._following = {name: buffer.rows[buffer.steps][name].copy() for name in self._observed}
        return buffer.frames

    def _append(self, row: Mapping[str, Any]) -> None:
        if self._single:
            row = {name: value[0] for name, value in row.items()}
        self._writer.append(self._signature.unflatten(row))

    def _append_marked(self, row: Mapping[str, Any], masked: NDArray[np.bool_]) -> None:
        if self._single:
            self._writer.end_lanes(np.zeros(1, np.int64), {name: row[name] for name in self._observed})
        else:
            idle = np.zeros(len(masked), np.bool_)
            self._writer.append_marked(self._signature.unflatten(row), masked, idle, self._observed)

    def cut(self) -> None:
        """End the open trajectories: all copies are about to be reset, or no step will follow.

        Raises:
            StoreFull: no free page for the final rows; the trajectories stay open.
        """
        following = self._following
        if following is None:
            # The last rollout was not written whole. How far it came is not known, and so not what followed either:
            # items that look ahead of the last step would see nothing there.
            self._writer.drop_open_lanes()
        elif self._open.any():
            copies = np.flatnonzero(self._open)
            self._writer.end_lanes(copies, {name: column[copies] for name, column in following.items()})
        self._open[:] = False
        self._following = {}

    def close(self) -> None:
        """End the open trajectories (see `cut`) and close the writer.

        Items that wait for a rate limiter go in when it opens.

        Raises:
            StoreFull: no free page for the final rows; the writer is closed.
        """
        with suppress(Closed):  # The replay was closed first.
            try:
                self.cut()
            finally:
                self._close_writer()

    def _close_writer(self) -> None:
        try:
            self._writer.close(timeout=0)
        except DeadlineExceeded:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                self._writer.abandon()
