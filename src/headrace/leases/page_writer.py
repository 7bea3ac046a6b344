"""The writer's side of the lease protocol: it fills leased pages in place. Only NumPy is needed here.

A page is a block of vector steps, time x lanes. Rows are invisible until the grantor has committed them, so a writer
that dies in the middle of a step leaves no trace. The writer writes columns only: step indices, links and versions are
written by the grantor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.kernels.row_copy import write_columns
from headrace.leases.final_rows import FinalRows
from headrace.leases.forwarding import Steps, steps_of
from headrace.leases.messages import POLICY_VERSIONS, Commit, Return, packed, unpacked
from headrace.leases.page_views import Columns, PageViews
from headrace.leases.step_marks import StepMarks

Lanes: TypeAlias = NDArray[np.integer[Any]]
Purpose: TypeAlias = Literal["rows", "finals"]

# Of one report: so that its message stays far below the longest that is taken.
_MOST_ENDS = 1 << 14
_MOST_STEPS = 1 << 16

NO_LANES: Lanes = np.empty(0, np.int64)
NO_LANES.setflags(write=False)


class PageWriter:
    """Writes vector steps into leased pages, and reports them.

    The observations of a step are written into `row` before the step is taken, and the observations that follow it into
    `next_row`. So the observations after the last reported step stand in the row after it.

    Args:
        columns: each column's array over the whole arena, `dtype[rows, ...]`.
        page_rows: rows of a page.
        observed: names of the columns that an observation has; final rows have values of these alone.
        lanes: of this writer, at most `page_rows`.
        need_page: waits for the next leased page for rows or for final rows. It is called between two steps only, when
            the rows written so far are consistent and may be reported.
        writer: its number in its connection.

    Attributes:
        page: the page being filled.
        sequence: of the last report; 0 before the first.
    """

    def __init__(
        self,
        columns: Columns,
        page_rows: int,
        observed: Iterable[str],
        lanes: int,
        need_page: Callable[[Purpose], int],
        writer: int = 0,
    ) -> None:
        observed = frozenset(observed)
        self._columns = columns
        self._observed = [name for name in columns if name in observed]
        self._others = [name for name in columns if name not in observed]
        self._lanes = lanes
        self._page_rows = page_rows
        self._steps_in_page = page_rows // lanes
        self._need_page = need_page
        self._writer = writer
        self.sequence = 0
        self.page, self._ahead = -1, -1
        self._step = self._reported = self._steps_in_page
        self._finals = FinalRows(page_rows)
        self._views = PageViews(columns, observed, page_rows, lanes)
        # Lanes that are in no episode after the last step.
        self._closed: Lanes = np.arange(lanes)
        self._begin_report()

    def _begin_report(self) -> None:
        self._reported = self._step
        self._versions: list[int | NDArray[np.integer[Any]]] = []
        self._marks = StepMarks(self._lanes)
        self._cut: Lanes = NO_LANES

    # ---- steps -----------------------------------------------------------------------------------------------------

    def begin(self, first: Columns) -> None:
        """Takes the first pages; `first` has the observations of the first step, columns `[lanes, ...]`."""
        self._enter(self._need_page("rows"))
        self._provide_finals()
        for name, column in self.row.items():
            column[...] = first[name]

    @property
    def row(self) -> Columns:
        """The observations of the next step, columns `[lanes, ...]`."""
        return self._rows[self._step]

    @property
    def next_row(self) -> Columns:
        """Buffer of the observations after the next step; in the next page if this one ends there."""
        if self._step + 1 < self._steps_in_page:
            return self._rows[self._step + 1]
        if self._ahead < 0:
            self._ahead = self._need_page("rows")
        return self._views.of(self._ahead).rows[0]

    def record(
        self,
        values: Columns,
        version: int | NDArray[np.integer[Any]],
        resets: Lanes = NO_LANES,
        ended: Lanes = NO_LANES,
        last: Columns | None = None,
    ) -> None:
        """Writes one vector step.

        Args:
            values: columns `[lanes, ...]` beside the observations; those that are missing are zeros.
            version: of the policy that acted; int[lanes] where lanes were acted for at different times: then at each
                step.
            resets: int[r], rising: lanes that took no transition; `row` holds the final row of their episode.
            ended: int[m], rising: lanes whose episode this step ends, with a final row beside the lanes.
            last: columns `[lanes, ...]`: the observations of the final rows of `ended`.
        """
        step = self._step
        write_columns(self._others_here, step, values)
        self._versions.append(version)
        before, self._closed = self._closed, NO_LANES
        if resets.size:
            self._marks.reset(step - self._reported, resets, before)
            self._closed = resets
        if ended.size and last is not None:
            self._write_finals(ended, last)
            self._marks.end(step - self._reported, ended)
            self._closed = np.union1d(resets, ended) if resets.size else ended
        self._step = step + 1

    def mark_idle(self, lanes: Lanes) -> None:
        """Marks lanes that hold nothing in the step that was recorded last.

        Args:
            lanes: int64[i], rising: none of them was in an episode before the step.
        """
        if lanes.size:
            self._marks.idle(self._step - 1 - self._reported, lanes)
            self._closed = np.union1d(self._closed, lanes)

    def cut(self, lanes: Lanes | None = None) -> None:
        """Ends open episodes because lanes are about to be reset; their part of `row` becomes their final rows.

        The grantor may still read `row`, so it may be overwritten only when the next report is acknowledged.
        All steps before were reported.

        Args:
            lanes: int64[c], rising; None: all.
        """
        is_open = self.is_open
        self._cut = np.flatnonzero(is_open) if lanes is None else lanes[is_open[lanes]]
        if self._cut.size:
            self._write_finals(self._cut, self.row)
            self._closed = np.union1d(self._closed, self._cut)

    def unreported(self, name: str) -> NDArray[Any]:
        """Returns a column that is not observed, in the steps since the last report: `[steps, lanes, ...]`.

        Rows without a transition are zeros only after the report.
        """
        return self._views.of(self.page).others[name][self._reported : self._step]

    @property
    def unreported_versions(self) -> list[int | NDArray[np.integer[Any]]]:
        """The version of the policy that acted at each step since the last report, or its versions by lane."""
        return self._versions

    @property
    def unreported_masked(self) -> NDArray[np.int64]:
        """int64[f]: rows without a transition since the last report, as `Commit` counts them."""
        return self._marks.rows().masked

    def _write_finals(self, lanes: Lanes, observations: Columns) -> None:
        rows = self._finals.take(len(lanes))
        for name in self._observed:
            self._columns[name][rows] = observations[name].take(lanes, 0)

    # ---- pages -----------------------------------------------------------------------------------------------------

    def _enter(self, page: int) -> None:
        """Continues in this page."""
        self.page, self._ahead = page, -1
        self._step = self._reported = 0
        views = self._views.of(page)
        self._rows, self._others_here = views.rows, list(views.others.items())

    def _provide_finals(self) -> None:
        """Takes pages of final rows until there are enough for every step of a page and for a cut after it."""
        while not self.has_final_rows:
            self._finals.add(self._need_page("finals"))

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """bool[lanes], whether an episode is under way in the lane after the last step."""
        is_open = np.ones(self._lanes, np.bool_)
        is_open[self._closed] = False
        return is_open

    @property
    def page_is_full(self) -> bool:
        """Whether the page cannot hold another step."""
        return self._step == self._steps_in_page

    @property
    def must_report(self) -> bool:
        """Whether `report` is due: the page is full, or the message has become long."""
        return (
            self._step == self._steps_in_page
            or self._marks.count >= _MOST_ENDS
            or self._step - self._reported >= _MOST_STEPS
        )

    @property
    def has_news(self) -> bool:
        """Whether anything was written since the last report."""
        return self._step > self._reported or self._cut.size > 0

    def report(self) -> Commit:
        """Returns the steps written since the last report; `turn` follows before the next step is written."""
        self.sequence += 1
        final_rows, marked = self._finals.report(), self._marks.rows()
        if final_rows.size:
            for name in self._others:
                self._columns[name][final_rows] = 0
        if (masked := marked.masked).size:
            step, lane = np.divmod(masked, self._lanes)
            for _, block in self._others_here:
                block[self._reported + step, lane] = 0
        message = Commit(
            writer=self._writer,
            sequence=self.sequence,
            page=self.page,
            steps=self._step - self._reported,
            versions=packed(self._versions, POLICY_VERSIONS),
            final=packed(marked.final),
            idle=packed(marked.idle),
            ended=packed(marked.ended),
            cut=packed(self._cut),
            final_rows=packed(final_rows),
        )
        self._begin_report()
        return message

    def steps_of(self, commit: Commit) -> Steps:
        """Returns the steps of the report just made, in place, until `turn`."""
        first = self.page * self._page_rows + (self._step - commit.steps) * self._lanes
        return steps_of(commit, self._columns, first, self._lanes)

    def cuts_of(self, commit: Commit) -> tuple[NDArray[np.int64], Columns]:
        """Returns the lanes whose episodes the report just made cuts, and their final rows."""
        lanes = unpacked(commit.cut, "cut")
        rows = unpacked(commit.final_rows, "final_rows")
        rows = rows[len(rows) - len(lanes) :]
        return lanes, {name: self._columns[name][rows] for name in self._observed}

    @property
    def following(self) -> Columns:
        """The observations after the last step, before and after `turn`."""
        return self._views.of(self._ahead).rows[0] if self.page_is_full else self.row

    def continue_from(self, other: PageWriter) -> None:
        """Continues the episodes of another writer of these lanes, all of whose steps were reported."""
        self._closed = other._closed

    def turn(self) -> None:
        """Continues in the page ahead if this one is full."""
        if self.page_is_full:
            self._enter(self._ahead if self._ahead >= 0 else self._need_page("rows"))
            self._provide_finals()

    @property
    def has_final_rows(self) -> bool:
        """Whether `begin_block` takes no further page for final rows."""
        return self._finals.free >= self._page_rows + self._lanes

    @property
    def page_return(self) -> Return | None:
        """The message that gives the page back before it is full; None if it has no step.

        All steps were reported, and `begin_block` follows.
        """
        return Return(writer=self._writer, page=self.page) if self._step else None

    def begin_block(self) -> None:
        """Makes the next step the first one of a page, once all steps were reported."""
        if self._step == 0:
            return
        following = self.row
        self._enter(self._ahead if self._ahead >= 0 else self._need_page("rows"))
        self._provide_finals()
        for name, column in self.row.items():
            column[...] = following[name]
