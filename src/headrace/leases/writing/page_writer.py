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

from headrace.kernels.row_copy import settle_rows, write_row
from headrace.leases.forwarding import Steps, steps_of
from headrace.leases.messages import POLICY_VERSIONS, Commit, Return, packed, unpacked
from headrace.leases.page_views import Columns, PageViews
from headrace.leases.writing.final_rows import FinalRows
from headrace.leases.writing.page_steps import NO_LANES, Lanes, PageSteps

Purpose: TypeAlias = Literal["rows", "finals"]


class PageWriter(PageSteps):
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
        super().__init__(page_rows, lanes)
        observed = frozenset(observed)
        self._columns = columns
        self._observed = [name for name in columns if name in observed]
        self._others = [name for name in columns if name not in observed]
        self._page_rows = page_rows
        self._need_page = need_page
        self._writer = writer
        self.sequence = 0
        self._finals = FinalRows(page_rows)
        self._views = PageViews(columns, observed, page_rows, lanes)
        self._cut: Lanes = NO_LANES

    # ---- steps -----------------------------------------------------------------------------------------------------

    def begin(self, first: Columns) -> None:
        """Takes the first pages; `first` has the observations of the first step, columns `[lanes, ...]`."""
        self._enter_after(first, self._need_page("rows"))

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

    def _first_row_ahead(self) -> Columns:
        if self._ahead < 0:
            self._ahead = self._need_page("rows")
        return self._views.of(self._ahead).rows[0]

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

    def _enter_after(self, observations: Columns, page: int) -> None:
        """Continues in this page, whose first row takes observations from elsewhere."""
        self._enter(page)
        self._provide_finals()
        for name, column in self.row.items():
            if not write_row(column[np.newaxis], 0, observations[name], step_rows=1):
                column[...] = observations[name]

    def _provide_finals(self) -> None:
        """Takes pages of final rows until there are enough for every step of a page and for a cut after it."""
        while not self.has_final_rows:
            self._finals.add(self._need_page("finals"))

    @property
    def page_is_full(self) -> bool:
        """Whether the page cannot hold another step."""
        return self._step == self._steps_in_page

    @property
    def has_news(self) -> bool:
        """Whether anything was written since the last report."""
        return self._step > self._reported or self._cut.size > 0

    def report(self) -> Commit:
        """Returns the steps written since the last report; `turn` follows before the next step is written."""
        self.sequence += 1
        settle_rows()  # Not at each step, which would wait for it.
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
        self._begin_marks()
        self._cut = NO_LANES
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
        self._enter_after(self.row, self._ahead if self._ahead >= 0 else self._need_page("rows"))
