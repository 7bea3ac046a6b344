"""From a finished rollout to rows of a replay that is elsewhere: a client's, shards, or a wrapper around one."""

# Rules: collectors CF1 to CF5

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.inline.replay_output import ReplayOutput, observed_after
from headrace.collectors.step_appender import StepAppender
from headrace.errors import Closed, StoreFull
from headrace.leases.forwarding import Steps
from headrace.leases.page_views import Columns
from headrace.replay.public import Replay, core_of
from headrace.tables.description.rules import ItemRule

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike

_MOST_PENDING = 1000
# Steps for which free running makes room at once, if the store has as much.
_STEPS_AT_ONCE = 8


def output_to(
    replay: ReplayLike, num_envs: int, observed: Iterable[str], rules: Sequence[ItemRule]
) -> ReplayOutput | WriterOutput:
    """Returns what writes into a replay: in place if it is in this process, else by its writer of rows."""
    if isinstance(replay, Replay):
        return ReplayOutput(core_of(replay), num_envs, observed, rules)
    return WriterOutput(replay, num_envs, observed, rules)


class WriterOutput:
    """Does as `ReplayOutput` for a replay that is known by its interface alone.

    Args:
        replay: the replay.
        num_envs: lanes.
        observed: names of the columns that an observation has.
        rules: which items the rows become.

    Attributes:
        is_running: whether the collector runs freely.
    """

    def __init__(
        self, replay: ReplayLike, num_envs: int, observed: Iterable[str], rules: Sequence[ItemRule]
    ) -> None:
        self.is_running = False
        self._observed = tuple(observed)
        self._num_envs = num_envs
        self._columns = replay.signature.columns
        self._following: Columns | None = {}
        # Whether a step waits for items that are pending.
        self._waits = False
        self._writer = replay.row_writer(num_envs, items=rules, max_pending=_MOST_PENDING)
        self._writer.declare_final_columns(self._observed)
        self._appender = StepAppender(self._writer, num_envs, self._observed, self._prepare)

    def room(self) -> int:
        """See `ReplayOutput.room`."""
        if self._writer.pending >= _MOST_PENDING:
            return 0
        for steps in (_STEPS_AT_ONCE, 1):
            try:
                self._writer.make_room(steps + 1)  # With the final rows of all lanes.
            except StoreFull:
                if steps == 1 and not self.is_running:
                    raise
            else:
                return steps
        return 0

    def fail(self, failure: BaseException) -> None:
        """Does nothing: the learners that wait are elsewhere, and others may write for them."""

    def write(self, steps: Steps, following: Columns) -> None:
        """See `ReplayOutput.write`."""
        before, self._following = self._following, None
        self._waits = False
        try:
            self._appender.append(self._complete(steps))
        except KeyboardInterrupt:
            if self._waits:  # Here it is known what was written.
                self._following = observed_after(before, steps, self._appender.appended, following)
            raise
        # A client sends without waiting; the number of pending items is known when all rows are stored.
        _ = self._writer.pending
        self._following = following

    def _complete(self, steps: Steps) -> Steps:
        """Adds the columns that these steps lack, as zeros: random steps have no columns of the policy."""
        # Rules: collectors CR4
        shape = len(steps.versions), self._num_envs
        lacking = {
            name: np.zeros((*shape, *spec.shape), spec.dtype)
            for name, spec in self._columns.items()
            if name not in steps.columns
        }
        return steps._replace(columns={**steps.columns, **lacking}) if lacking else steps

    def _prepare(self) -> None:
        if not self.is_running:  # Else `room` has looked.
            self._waits = True
            self._writer.wait_to_append()
            self._waits = False

    def cut(self, lanes: NDArray[np.integer[Any]] | None = None) -> None:
        """See `ReplayOutput.cut`."""
        # Until all are cut: where Ctrl-C comes meanwhile, it is not known which have ended.
        following, self._following = self._following, None
        if following is None:
            self._writer.drop_open_lanes()
            self._following = {}
            return
        chosen = np.zeros(self._num_envs, np.bool_)
        chosen[slice(None) if lanes is None else lanes] = True
        try:
            ends = np.flatnonzero(self._writer.open_lanes & chosen)
            if ends.size:
                self._writer.end_lanes(ends, {name: following[name][ends] for name in self._observed})
        except (StoreFull, Closed):
            self._following = following
            raise
        self._following = following
        # As in `write`: a pause may follow, in which all there is must be stored.
        _ = self._writer.pending

    def close(self) -> None:
        """See `ReplayOutput.close`."""
        with suppress(Closed):  # The replay was closed first.
            try:
                self.cut()
            finally:
                if self._writer.pending:
                    self._writer.abandon()
                else:
                    self._writer.close()
