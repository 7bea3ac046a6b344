"""The vector steps of the page that a writer fills, as far as each step needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.leases.page_views import Columns
from headrace.leases.writing.step_marks import StepMarks

if cython.compiled:
    from cython.cimports.headrace.kernels.row_copy import write_columns
else:
    from headrace.kernels.kinds import Int
    from headrace.kernels.row_copy import write_columns

Lanes: TypeAlias = NDArray[np.integer[Any]]

# Of one report: so that its message stays far below the longest that is taken.
_MOST_ENDS = 1 << 14
_MOST_STEPS = 1 << 16

NO_LANES: Lanes = np.empty(0, np.int64)
NO_LANES.setflags(write=False)


class PageSteps:
    """Writes vector steps into the page that a writer is filling; `PageWriter` takes pages and reports steps.

    Compiled, because `RecordingStepper`, which is compiled too, calls it at each step.

    Args:
        page_rows: rows of a page.
        lanes: of the writer, at most `page_rows`.

    Attributes:
        page: the page being filled.
    """

    def __init__(self, page_rows: Int, lanes: Int) -> None:
        self._lanes = lanes
        self._steps_in_page = page_rows // lanes
        self.page = self._ahead = -1
        # Vector steps that are written in the page, and those of them that were reported.
        self._step = self._reported = self._steps_in_page
        # Columns `[lanes, ...]` of the observations of each step; the other columns `[steps, lanes, ...]`, by name.
        self._rows: list[Columns] = []
        self._others_here: list[tuple[str, NDArray[Any]]] = []
        # Lanes that are in no episode after the last step.
        self._closed: Lanes = np.arange(lanes)
        # Of the steps that are not reported.
        self._versions: list[int | NDArray[np.integer[Any]]] = []
        self._marks = StepMarks(lanes)

    def _begin_marks(self) -> None:
        """Notes that all steps so far are reported."""
        self._reported = self._step
        self._versions = []
        if self._marks.count:
            self._marks = StepMarks(self._lanes)

    @property
    def row(self) -> Columns:
        """The observations of the next step, columns `[lanes, ...]`."""
        if self._step >= len(self._rows):  # Compiled lists do not check it.
            raise IndexError("the page has no next step: it is full, or none was taken")
        return self._rows[self._step]

    @property
    def next_row(self) -> Columns:
        """Buffer of the observations after the next step; in the next page if this one ends there."""
        if self._step + 1 < self._steps_in_page:
            return self._rows[self._step + 1]
        return self._first_row_ahead()

    def _first_row_ahead(self) -> Columns:
        """Returns the first row of the next page."""
        raise NotImplementedError

    def record(
        self,
        values: Mapping[str, Any],
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
        if len(resets):
            self._marks.reset(step - self._reported, resets, before)
            self._closed = resets
        if len(ended) and last is not None:
            self._write_finals(ended, last)
            self._marks.end(step - self._reported, ended)
            self._closed = np.union1d(resets, ended) if len(resets) else ended
        self._step = step + 1

    def _write_finals(self, lanes: Lanes, observations: Columns) -> None:
        """Writes final rows of these lanes."""
        raise NotImplementedError

    def mark_idle(self, lanes: Lanes) -> None:
        """Marks lanes that hold nothing in the step that was recorded last.

        Args:
            lanes: int64[i], rising: none of them was in an episode before the step.
        """
        if lanes.size:
            self._marks.idle(self._step - 1 - self._reported, lanes)
            self._closed = np.union1d(self._closed, lanes)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """bool[lanes], whether an episode is under way in the lane after the last step."""
        is_open = np.ones(self._lanes, np.bool_)
        is_open[self._closed] = False
        return is_open

    @property
    def may_wait(self) -> bool:
        """Whether the next step is the last one of the page, or the page is full: it may wait for another page."""
        return self._step + 1 >= self._steps_in_page

    @property
    def must_report(self) -> bool:
        """Whether `report` is due: the page is full, or the message has become long."""
        return (
            self._step == self._steps_in_page
            or self._step - self._reported >= _MOST_STEPS
            or self._marks.count >= _MOST_ENDS
        )
