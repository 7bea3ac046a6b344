"""The writer's side of the lease protocol for lanes of different lengths. Only NumPy is needed here.

Environments that are stepped asynchronously, that wait for a reset, and agents that take turns give steps to some lanes
at a time. Each lane fills its own places in a page, one below the other, and an episode's final row follows its last
transition there. A vector step is reported when each lane has a row in it or no episode under way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from headrace.leases.messages import POLICY_VERSIONS, Commit, packed
from headrace.leases.page_views import Columns
from headrace.leases.writing.page_writer import Purpose

Lanes = NDArray[np.int64]

_NO_EPISODE = -1
_NO_VERSION = np.iinfo(POLICY_VERSIONS).max


class LaneWriter:
    """Writes steps of single lanes into leased pages, and reports them.

    A lane may be ahead of the slowest lane that is in an episode by the rest of a page and one page more (`free`).

    Args:
        columns: each column's array over the whole arena, `dtype[rows, ...]`.
        page_rows: rows of a page.
        observed: names of the columns that an observation has; final rows have values of these alone.
        lanes: of this writer, at most `page_rows`.
        need_page: waits for the next leased page. It is called between two steps only.
        writer: its number in its connection.

    Attributes:
        sequence: of the last report; 0 before the first.

    >>> columns = {"observation": np.zeros(12), "action": np.zeros(12)}
    >>> writer = LaneWriter(columns, 6, ["observation"], 2, lambda _: 0)
    >>> writer.begin(np.array([0, 1]), {"observation": np.array([1.0, 2.0])})
    >>> writer.append(np.array([1]), {"action": 5}, {"observation": 3.0}, version=1)
    >>> writer.end(np.array([1]))
    >>> [(commit.steps, len(commit.final), len(commit.idle)) for commit in writer.flush()]
    [(2, 8, 16)]
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
        names = frozenset(observed)
        self._observed = [(name, column) for name, column in columns.items() if name in names]
        self._others = [(name, column) for name, column in columns.items() if name not in names]
        self._lanes = lanes
        self._page_rows = page_rows
        self._in_page = page_rows // lanes
        self._need_page = need_page
        self._writer = writer
        self.sequence = 0
        self._page = self._ahead = -1
        # Steps of the page that are reported. A page that is reported whole is left with the next row.
        self._reported = self._in_page
        # Vector steps are counted through the page and the page ahead.
        self._heads = np.full(lanes, self._in_page)
        self._lengths = np.full(lanes, _NO_EPISODE)
        self._final = np.zeros((2 * self._in_page, lanes), np.bool_)
        self._idle = self._final.copy()
        self._versions = np.full(2 * self._in_page, _NO_VERSION, POLICY_VERSIONS)
        self._first = {
            name: np.zeros((lanes, *column.shape[1:]), column.dtype) for name, column in self._observed
        }

    # ---- steps -----------------------------------------------------------------------------------------------------

    @property
    def free(self) -> Lanes:
        """int64[lanes]: number of transitions that each lane can take before slower lanes take theirs."""
        heads = self._heads - self._in_page * (self._reported == self._in_page)
        free: Lanes = np.maximum(0, 2 * self._in_page - 1 - heads)
        return free

    def begin(self, lanes: Lanes, first: Columns) -> None:
        """Begins an episode in each of these lanes.

        Args:
            lanes: int64[m].
            first: columns `[m, ...]`: the first observations.

        Raises:
            ValueError: an episode is under way in one of them.
        """
        self._check(lanes, self._lengths[lanes] <= 0, "have an episode under way; end it first")
        for name, values in self._first.items():
            values[lanes] = first[name]
        self._lengths[lanes] = 0

    def append(self, lanes: Lanes, values: Columns, following: Columns, version: int) -> None:
        """Writes one transition of each of these lanes.

        Args:
            lanes: int64[m], each once.
            values: columns `[m, ...]` beside the observations; those that are missing are zeros.
            following: columns `[m, ...]`: the observations that followed.
            version: of the policy that acted. A vector step has the lowest of its lanes.

        Raises:
            ValueError: a lane without an episode, or without `free` steps; nothing is written.
        """
        self._check(lanes, self._lengths[lanes] >= 0, "have no episode under way; begin one")
        self._check(lanes, self.free[lanes] > 0, "are a page ahead; append to the slower lanes, or end these")
        self._turn()
        heads = self._heads[lanes]
        if self._ahead < 0 and len(heads) and heads.max() + 1 >= self._in_page:
            self._ahead = self._need_page("rows")
        rows, begins = self._rows(lanes, heads), self._lengths[lanes] == 0
        for name, column in self._observed:
            column[rows[begins]] = self._first[name][lanes[begins]]
            column[self._rows(lanes, heads + 1)] = following[name]
        for name, column in self._others:
            column[rows] = values.get(name, 0)
        self._versions[heads] = np.minimum(self._versions[heads], version)
        self._heads[lanes] += 1
        self._lengths[lanes] += 1

    def end(self, lanes: Lanes) -> None:
        """Ends the episodes of these lanes: the observations that followed last become final rows.

        Args:
            lanes: int64[m].

        Raises:
            ValueError: a lane has no transition since its last end; nothing is written.
        """
        self._check(lanes, self._lengths[lanes] > 0, "have no transition of an episode")
        heads = self._heads[lanes]
        rows = self._rows(lanes, heads)
        for _, column in self._others:
            column[rows] = 0
        self._final[heads, lanes] = True
        self._heads[lanes] += 1
        self._lengths[lanes] = _NO_EPISODE

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """bool[lanes], whether an episode with transitions is under way in the lane."""
        return self._lengths > 0

    def _check(self, lanes: Lanes, is_right: NDArray[np.bool_], problem: str) -> None:
        if not is_right.all():
            raise ValueError(f"lanes {lanes[~is_right].tolist()} {problem}")

    def _rows(self, lanes: Lanes, heads: Lanes) -> Lanes:
        """The rows of the store at these heads."""
        pages = np.where(heads < self._in_page, self._page, self._ahead)
        rows: Lanes = pages * self._page_rows + heads % self._in_page * self._lanes + lanes
        return rows

    # ---- reports ---------------------------------------------------------------------------------------------------

    @property
    def reportable(self) -> int:
        """Number of vector steps that `flush` reports."""
        return self._level() - self._reported

    def flush(self) -> list[Commit]:
        """Reports the vector steps that each lane has passed; lanes without an episode hold nothing in theirs."""
        if self.reportable:
            self._turn()
        level = self._level()
        waiting = np.flatnonzero((self._lengths <= 0) & (self._heads < level))
        for lane in waiting.tolist():
            self._idle[self._heads[lane] : level, lane] = True
        self._heads[waiting] = level
        commits = []
        while level > self._reported:
            commits.append(self._report(min(level, self._in_page)))
            if level > self._in_page:
                level -= self._in_page
                self._turn()
        return commits

    def _level(self) -> int:
        is_open = self.is_open
        return int(self._heads[is_open].min() if is_open.any() else self._heads.max())

    def _report(self, stop: int) -> Commit:
        steps = slice(self._reported, stop)
        versions = self._versions[steps]
        self.sequence += 1
        self._reported = stop
        return Commit(
            writer=self._writer,
            sequence=self.sequence,
            page=self._page,
            steps=len(versions),
            versions=packed(np.where(versions == _NO_VERSION, 0, versions), POLICY_VERSIONS),
            final=packed(np.flatnonzero(self._final[steps])),
            idle=packed(np.flatnonzero(self._idle[steps])),
        )

    def _turn(self) -> None:
        """Goes on in the next page where this one is reported whole."""
        if self._reported < self._in_page:
            return
        self._page, self._ahead = self._ahead if self._ahead >= 0 else self._need_page("rows"), -1
        self._reported = 0
        self._heads -= self._in_page
        for each, empty in ((self._final, False), (self._idle, False), (self._versions, _NO_VERSION)):
            each[: self._in_page] = each[self._in_page :]
            each[self._in_page :] = empty
