"""A rollout as a batch, in the process that collects it: for the hook after a rollout."""

# Rules: collectors CH1

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch
from headrace.collectors.batches.batch_maker import BatchArrays, BatchMaker
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.leases.forwarding import Steps
from headrace.leases.messages import Commit
from headrace.leases.page_views import Columns
from headrace.leases.page_writer import PageWriter
from headrace.spec import Signature


class _Ends(NamedTuple):
    """Rows after which a final row stands elsewhere.

    Attributes:
        lanes, steps: of these rows.
        finals: columns `[m, ...]` of the final rows.
    """

    lanes: NDArray[np.int64]
    steps: NDArray[np.int64]
    finals: Columns


class RolloutCopy:
    """Copies the steps of each rollout as they are reported, and makes a batch of them.

    The pages that a worker fills are not its own after a report, so nothing is read from them later. Episodes are
    numbered by the worker itself: ids of the batches that are handed out may differ.

    Args:
        loop: the collecting loop.
        worker_idx: of the batches.
    """

    def __init__(self, loop: CollectingLoop, worker_idx: int) -> None:
        num_envs = loop.stepper.num_envs
        self._loop = loop
        self._numbering = EpisodeNumbering(num_envs)
        self._maker = BatchMaker(num_envs, self._numbering, ViewColumns(loop.views, num_envs), worker_idx)
        lengths = loop.episode_lengths
        # Episodes may be under way: their next step is not the first one.
        is_open = lengths > 0
        ids = np.cumsum(is_open) - 1
        state = {"next_id": int(is_open.sum()), "ids": ids, "lengths": lengths}
        self._numbering.load_state_dict(state, is_open)
        self._is_open = loop.writer.is_open
        self._ends: list[_Ends] = []
        self._steps = 0

    def begin(self, signature: Signature) -> None:
        """Begins a rollout.

        Args:
            signature: of the columns that the loop writes.
        """
        self._arrays: BatchArrays = self._maker.begin(signature, self._loop.observed, self._loop.steps)
        self._is_open = self._loop.writer.is_open
        self._ends = []
        self._steps = 0

    def add_report(self, writer: PageWriter, commit: Commit) -> None:
        """Copies the steps of the report that the writer has just made, and notes the episodes that it cuts."""
        if commit.steps:
            self._add(writer.steps_of(commit))
        if commit.cut:
            self._cut(*writer.cuts_of(commit))

    def _add(self, steps: Steps) -> None:
        arrays, count, lanes = self._arrays, len(steps.versions), len(self._is_open)
        here = slice(self._steps, self._steps + count)
        for name, column in arrays.columns.items():
            column[:, here] = steps.columns[name].swapaxes(0, 1)
        arrays.versions[:, here] = steps.versions
        masked, closes = np.zeros((2, count, lanes), np.bool_)
        for rows in (steps.final, steps.idle):
            masked.reshape(-1)[rows] = True
        closes |= masked
        closes.reshape(-1)[steps.ended] = True
        arrays.masked[here] = masked
        arrays.starts[here] = ~np.concatenate([self._is_open[None], ~closes[:-1]]) & ~masked
        self._note_ends(steps.ended, steps.finals)
        self._is_open = ~closes[-1]
        self._steps += count

    def _note_ends(self, rows: NDArray[np.int64], finals: Columns) -> None:
        if len(rows):
            steps, lanes = np.divmod(rows, len(self._is_open))
            copies = {name: finals[name].copy() for name in self._arrays.following}
            self._ends.append(_Ends(lanes, steps + self._steps, copies))

    def _cut(self, lanes: NDArray[np.int64], finals: Columns) -> None:
        """Notes that the episodes of these lanes end after the last step that was added, with these final rows."""
        if self._steps:
            self._ends.append(_Ends(lanes, np.full_like(lanes, self._steps - 1), finals))
        self._is_open[lanes] = False

    def take(self, following: Columns) -> Batch:
        """Returns the rollout as a batch `[n, T, ...]`.

        Args:
            following: columns `[n, ...]`, the observations after the last step.
        """
        arrays = self._arrays
        for name, column in arrays.following.items():
            last = self._steps - 1  # The steps after it are masked.
            column[:, :last] = arrays.columns[name][:, 1 : last + 1]
            column[:, last] = following[name]
            for lanes, steps, finals in self._ends:
                column[lanes, steps] = finals[name]
        return self._maker.finish(arrays)
