"""From a finished rollout to rows of a replay, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed, StoreFull
from headrace.leases.destination import ReplayItems
from headrace.leases.forwarding import CommitForwarder, Steps
from headrace.leases.grantor import BY_COPY, LeaseGrantor
from headrace.leases.page_views import Columns
from headrace.replay.local import LocalReplay
from headrace.tables.description.rules import ItemRule

# Items of one block of lanes that may wait for a rate limiter.
_MOST_PENDING = 1000


class ReplayOutput:
    """Writes rollouts into a replay, with a final row at every end of an episode.

    Args:
        replay: in this process.
        num_envs: lanes.
        observed: names of the columns that an observation has.
        rules: which items the rows become.

    Attributes:
        is_running: whether the collector runs freely: then the learner may make room in a full replay meanwhile.
    """

    def __init__(
        self, replay: LocalReplay, num_envs: int, observed: Iterable[str], rules: Sequence[ItemRule]
    ) -> None:
        self.is_running = False
        most = replay.store.arrays.page_rows
        self._following: Columns | None = {}
        self._blocks = [
            _Block(replay, slice(first, min(first + most, num_envs)), observed, rules, self._may_wait)
            for first in range(0, num_envs, most)
        ]

        self._replay = replay

    @property
    def _is_open(self) -> NDArray[np.bool_]:
        """bool[n], lanes that are in an episode after the steps that were written."""
        return np.concatenate([block.is_open for block in self._blocks])

    def _may_wait(self) -> bool:
        return self.is_running and self._replay.items_may_leave()

    def room(self) -> int:
        """Returns the number of vector steps that can be written now without waiting.

        Raises:
            StoreFull: none, and the learner cannot be expected to make room.
        """
        return min(block.room() for block in self._blocks)

    def fail(self, failure: BaseException) -> None:
        """Ends the waits of learners for rows that only this collector could write."""
        for block in self._blocks:
            block.fail(failure)

    def write(self, steps: Steps, following: Columns) -> None:
        """Appends every step of a rollout.

        Args:
            steps: T of them.
            following: columns `[n, ...]`, the observations after the last step.

        Raises:
            StoreFull: some steps may be stored; `cut` before the next rollout.
        """
        before, self._following = self._following, None
        first, count = 0, len(steps.versions)
        while first < count:
            try:
                for block in self._blocks:
                    block.wait()
            except KeyboardInterrupt:
                # Here it is known what was written, so the newest transitions of open lanes become items.
                self._following = observed_after(before, steps, first, following)
                raise
            stop = min(count, first + min(block.make_room() for block in self._blocks))
            for block in self._blocks:
                block.write(steps, first, stop)
            first = stop
        self._following = following

    def cut(self, lanes: NDArray[np.integer[Any]] | None = None) -> None:
        """Ends open episodes, because environments are about to be reset or no step will follow.

        Args:
            lanes: None: all.

        Raises:
            StoreFull: no free page for the final rows; episodes stay open, and another call goes on.
        """
        following = self._following
        if following is None:
            # The last rollout was not written whole. The rows after its last steps are unknown, so items with
            # look-ahead would find no rows there.
            for block in self._blocks:
                block.begin_anew()
            self._following = {}
            return
        chosen = np.zeros_like(self._is_open)
        chosen[slice(None) if lanes is None else lanes] = True
        self._following = (
            None  # Until all are cut: where Ctrl-C comes meanwhile, the state of the leases is not known.
        )
        try:
            for block in self._blocks:
                block.cut(self._is_open & chosen, following)
        except (StoreFull, Closed):
            self._following = following
            raise
        self._following = following

    def close(self) -> None:
        """Ends the open episodes (see `cut`) and returns the pages.

        Items that wait for a rate limiter go in when it opens.

        Raises:
            StoreFull: no free page for the final rows; all pages are returned.
        """
        try:
            with suppress(Closed):  # The replay was closed first.
                self.cut()
        finally:
            for block in self._blocks:
                block.close()


def observed_after(before: Columns | None, steps: Steps, count: int, names: Iterable[str]) -> Columns | None:
    """Returns the observations after the first `count` steps, of more.

    Args:
        before: those before the steps; None: not known.
        steps: the steps.
        count: number of these.
        names: of the columns that an observation has.
    """
    if not count or before is None:
        return before
    return {name: steps.columns[name][count].copy() for name in names}


class _Block:
    """Some lanes, at most as many as a page has rows: a writer beside its grantor."""

    def __init__(
        self,
        replay: LocalReplay,
        lanes: slice,
        observed: Iterable[str],
        rules: Sequence[ItemRule],
        may_wait: Callable[[], bool],
    ) -> None:
        self._may_wait = may_wait
        self._replay = replay
        self.lanes = lanes
        self._observed = tuple(observed)
        self._rules = rules
        self._begin()

    def _begin(self) -> None:
        lanes = self.lanes.stop - self.lanes.start
        items = ReplayItems(self._replay, self._rules)
        self._items = items
        self._forwarder = CommitForwarder(self._commit, self._replay.store.arrays.page_rows, lanes)
        self._grantor = LeaseGrantor(
            items, lanes, self._forwarder.take, ahead=BY_COPY, may_wait=self._may_wait
        )
        self._grantor.open(self._observed)

    def _commit(self, *arguments: Any) -> None:
        self._grantor.commit(*arguments)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """bool[...], lanes that are in an episode after the steps that were written."""
        return self._grantor.lane_steps > 0

    def wait(self) -> None:
        """Waits while too many items are pending."""
        self._items.wait_pending(_MOST_PENDING)

    def make_room(self) -> int:
        """Returns the number of vector steps that fit into the page."""
        if not self._forwarder.free:
            self._grantor.lease_owed()
        return self._forwarder.free

    def room(self) -> int:
        """Returns the number of vector steps that fit into the page now; 0 while too many items are pending."""
        if self._items.pending.count >= _MOST_PENDING:
            return 0
        if not self._forwarder.free:
            self._grantor.lease_owed()
        return self._forwarder.free

    def fail(self, failure: BaseException) -> None:
        """See `ReplayItems.fail`."""
        self._items.fail(failure)

    def write(self, steps: Steps, first: int, stop: int) -> None:
        """Appends these vector steps of the block's lanes."""
        self._forwarder.forward(steps.part(first, stop, self.lanes))

    def cut(self, ends: NDArray[np.bool_], following: Columns) -> None:
        """Ends the open episodes of those of the block's lanes where `ends`, bool[n], is True.

        Raises:
            StoreFull: before they end, or because no page is left when they have ended: `is_open` tells.
        """
        lanes = np.flatnonzero(ends[self.lanes])
        if lanes.size:
            self._grantor.lease_owed()
            finals = {name: column[self.lanes][lanes] for name, column in following.items()}
            self._forwarder.cut(lanes, finals)

    def begin_anew(self) -> None:
        """Forgets the open episodes and all leases, whose state is not known."""
        self._grantor.drop_episodes()
        self._grantor.close()
        self._begin()

    def close(self) -> None:
        """Returns the pages."""
        self._grantor.close()
