"""Rollouts whose rows change in the end: collected in private memory, then written into leased pages as a whole."""

# Rules: collectors CH1, CR8, CR10

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch_maker import BatchMaker
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.handing_out import Postproc
from headrace.collectors.batches.stored_columns import StoredColumns
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.hooks import CollectHooks
from headrace.collectors.loop.local_rows import LocalRows
from headrace.collectors.loop.step_counts import StepCounts
from headrace.envs.protocol import Indices
from headrace.leases.forwarding import Steps
from headrace.leases.messages import Commit
from headrace.leases.page_views import Columns
from headrace.leases.writing.page_writer import PageWriter


class StagedRollouts:
    """Collects each rollout in private memory, and writes it into leased pages when its rows are final.

    Rows are marked (`CollectingLoop.marks`), and `postproc` makes others of them, when the rollout is complete.

    The first observation of a rollout is the one that was written after the rollout before, where the episode goes on.

    Args:
        loop: the collecting loop.
        postproc: the user's function; None: there is none.
        hooks: of the loop.
        worker_idx: of the batches.
        send: sends a report, counts of its steps, and whether it completes the rollout.
    """

    def __init__(
        self,
        loop: CollectingLoop,
        postproc: Postproc | None,
        hooks: CollectHooks,
        worker_idx: int,
        send: Callable[[Commit, StepCounts, bool], None],
    ) -> None:
        self._loop = loop
        self._postproc = postproc
        self._hooks = hooks
        self._idx = worker_idx
        self._send = send

    def open(self, writer: PageWriter) -> None:
        """Begins to write into the pages of this writer; the episodes so far have ended."""
        loop = self._loop
        num_envs = loop.stepper.num_envs
        writer.begin(loop.row)
        self._writer = writer
        views = ViewColumns(loop.views, num_envs)
        self._maker = BatchMaker(num_envs, EpisodeNumbering(num_envs), views, self._idx, loop.marks)
        self._stored = None if self._postproc is None else StoredColumns(self._postproc, loop.views)
        self._rows = LocalRows(loop, self._maker)

    def add_columns(self) -> None:
        """Continues with the columns that the loop knows now."""
        self._rows = LocalRows(self._loop, self._maker, self._rows)

    def cut(self, envs: Indices | None) -> None:
        """Ends the episodes of environments (None: of all) after their last steps; their reset follows."""
        is_within = self._rows.has_steps
        self._rows.cut(envs)
        if not is_within:  # Else `finish` writes the steps with their ends.
            self._writer.cut(envs)

    def flush(self) -> None:
        """Reports what was written into the leased pages."""
        if self._writer.has_news:
            self._send(self._writer.report(), StepCounts(), False)

    def finish(self) -> None:
        """Calls the hook and `postproc` on the rollout that is complete, and writes its rows into the leased pages.

        Raises:
            TypeError, SpecError: `postproc` returned what cannot be stored.
            Exception: raised by the hook or by `postproc`.
        """
        loop = self._loop
        batch, steps, counts = self._rows.complete(self._hooks)
        following = loop.following()
        if self._stored is not None:
            _, steps, following = self._stored.of(batch, steps, following)
        loop.end()
        self._write(steps, following, counts)

    def _write(self, steps: Steps, following: Columns, counts: StepCounts) -> None:
        """Writes all steps of a rollout; a report is sent whenever one is due, and after the last step."""
        writer, times = self._writer, self._loop.times
        begin = times.clock()
        marks = _StepMarks(steps, self._loop.stepper.num_envs)
        starts = np.flatnonzero(~writer.is_open)
        for name, column in writer.row.items():
            column[starts] = steps.columns[name][0][starts]
        count = len(steps.versions)
        for step in range(count):
            is_last = step + 1 == count
            for name, column in writer.next_row.items():
                column[...] = following[name] if is_last else steps.columns[name][step + 1]
            values = {name: column[step] for name, column in steps.columns.items()}
            masked, ended, last = marks.of(step)
            writer.record(values, steps.versions[step], masked, ended, last)
            if is_last or writer.must_report:
                times.note("write", begin)
                self._send(writer.report(), counts if is_last else StepCounts(), is_last)
                begin = times.clock()
                writer.turn()


class _StepMarks:
    """Finds the lanes that each step of a rollout masks or ends.

    Args:
        steps: of the rollout.
        lanes: n.
    """

    def __init__(self, steps: Steps, lanes: int) -> None:
        self._masked = steps.lanes_of(np.union1d(steps.final, steps.idle))
        self._ended = steps.lanes_of(steps.ended)
        self._finals = steps.finals
        self._last = {
            name: np.zeros((lanes, *rows.shape[1:]), rows.dtype) for name, rows in steps.finals.items()
        }
        self._done = 0

    def of(self, step: int) -> tuple[NDArray[Any], NDArray[Any], Columns]:
        """Returns the masked lanes, the ended lanes, and columns `[n, ...]` with the final rows of these.

        Steps are asked for in their order; the columns are overwritten by the next call.
        """
        ended = self._ended[step]
        rows = slice(self._done, self._done + len(ended))
        self._done = rows.stop
        for name, column in self._last.items():
            column[ended] = self._finals[name][rows]
        return self._masked[step], ended, self._last
