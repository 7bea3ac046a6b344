"""Forwarding of steps to a grantor that cannot read them in place: their columns go with the commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.leases.messages import POLICY_VERSIONS, Commit, Lease, Message, packed, unpacked
from headrace.leases.page_views import Columns
from headrace.leases.writing.final_rows import FinalRows

Rows = NDArray[np.int64]


class Steps(NamedTuple):
    """Vector steps with their columns. Rows are counted as in `Commit`.

    Attributes:
        columns: maps each column to `[steps, lanes, ...]`.
        versions: int32[steps], or int32[steps, lanes].
        final, idle: int64[...], rising.
        ended: int64[m], rising.
        finals: maps each column to `[m, ...]`: the final rows of `ended`.
    """

    columns: Columns
    versions: NDArray[np.int32]
    final: Rows
    idle: Rows
    ended: Rows
    finals: Columns

    @property
    def taken(self) -> NDArray[np.bool_]:
        """bool[steps, lanes], where there is a transition."""
        taken = np.ones(next(iter(self.columns.values())).shape[:2], np.bool_)
        for rows in (self.final, self.idle):
            taken.reshape(-1)[rows] = False
        return taken

    def lanes_of(self, rows: Rows) -> list[Rows]:
        """Returns the lanes of some rows, which rise: one array for each step."""
        step, lane = np.divmod(rows, next(iter(self.columns.values())).shape[1])
        return np.split(lane, np.searchsorted(step, np.arange(1, len(self.versions))))

    def part(self, first: int, stop: int, lanes: slice) -> Steps:
        """Returns the vector steps from `first` to `stop` of some lanes."""
        count = next(iter(self.columns.values())).shape[1]
        width = len(range(*lanes.indices(count)))

        def within(rows: Rows) -> tuple[NDArray[np.intp], Rows]:
            step, lane = np.divmod(rows, count)
            places = np.flatnonzero(
                (step >= first) & (step < stop) & (lane >= lanes.start) & (lane < lanes.stop)
            )
            return places, (step[places] - first) * width + lane[places] - lanes.start

        places, ended = within(self.ended)
        return Steps(
            {name: column[first:stop, lanes] for name, column in self.columns.items()},
            self.versions[first:stop] if self.versions.ndim == 1 else self.versions[first:stop, lanes],
            within(self.final)[1],
            within(self.idle)[1],
            ended,
            {name: column[places] for name, column in self.finals.items()},
        )

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Returns a copy of steps that follow one another, as one."""
        lanes = next(iter(parts[0].columns.values())).shape[1]
        first = np.cumsum([0, *(len(part.versions) for part in parts[:-1])]) * lanes

        def rows(name: str) -> Rows:
            return np.concatenate([getattr(part, name) + n for part, n in zip(parts, first, strict=True)])

        return cls(
            {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
            np.concatenate([part.versions for part in parts]),
            rows("final"),
            rows("idle"),
            rows("ended"),
            {name: np.concatenate([part.finals[name] for part in parts]) for name in parts[0].finals},
        )

    def ending(self, lanes: Rows, finals: Columns) -> Steps:
        """Returns the same steps, with which the episodes of further lanes end, too.

        Args:
            lanes: int64[c], with a transition in the last step and no end there.
            finals: their final rows `[c, ...]` in the columns that an observation has; zeros elsewhere.
        """
        count = next(iter(self.columns.values())).shape[1]
        ended = np.concatenate([self.ended, (len(self.versions) - 1) * count + lanes])
        order = np.argsort(ended)
        rows = {
            name: np.concatenate(
                [column, finals.get(name, np.zeros((len(lanes), *column.shape[1:]), column.dtype))]
            )[order]
            for name, column in self.finals.items()
        }
        return self._replace(ended=ended[order], finals=rows)


def steps_of(commit: Commit, columns: Columns, first: int, lanes: int) -> Steps:
    """Returns the steps of a commit, in place.

    Args:
        commit: of a writer in place.
        columns: each column's array over the whole arena.
        first: row of the arena, the first of the steps.
        lanes: of the writer.
    """
    steps: dict[str, NDArray[Any]] = {}
    for name, column in columns.items():
        rows = column[first : first + commit.steps * lanes]
        steps[name] = rows.reshape(commit.steps, lanes, *rows.shape[1:])
    ended = unpacked(commit.ended, "ended")
    final_rows = unpacked(commit.final_rows, "final_rows")[: len(ended)]
    versions = unpacked(commit.versions, "versions", POLICY_VERSIONS)
    return Steps(
        steps,
        versions if len(versions) == commit.steps else versions.reshape(commit.steps, lanes),
        unpacked(commit.final, "final"),
        unpacked(commit.idle, "idle"),
        ended,
        {name: column[final_rows] for name, column in columns.items()},
    )


class CommitForwarder:
    """The writer's side of the lease protocol for steps that are written elsewhere already.

    Args:
        commit: gives the grantor a commit, the columns of its steps and those of its final rows.
        page_rows: rows of a page of the grantor's store.
        lanes: of the writer.
        writer: its number in its connection.
    """

    def __init__(
        self,
        commit: Callable[[Commit, Columns, Columns], None],
        page_rows: int,
        lanes: int,
        writer: int = 0,
    ) -> None:
        self._commit = commit
        self._steps_in_page = page_rows // lanes
        self._lanes = lanes
        self._writer = writer
        self._sequence = 0
        self._pages: deque[int] = deque()
        self._finals = FinalRows(page_rows)
        self._step = 0

    def take(self, *messages: Message) -> None:
        """Processes messages of the grantor."""
        for message in messages:
            if isinstance(message, Lease):
                if message.purpose == "rows":
                    self._pages.append(message.page)
                else:
                    self._finals.add(message.page)

    @property
    def free(self) -> int:
        """Number of vector steps that can be forwarded in one call."""
        has_finals = self._finals.free >= self._steps_in_page * self._lanes
        return self._steps_in_page - self._step if self._pages and has_finals else 0

    def forward(self, steps: Steps) -> None:
        """Commits steps that fit into the page.

        Raises: as `LeaseGrantor.commit`.
        """
        count = len(steps.versions)
        page = self._pages[0]
        self._step += count
        if self._step == self._steps_in_page:
            self._pages.popleft()
            self._step = 0
        self._send(page, count, steps, b"")

    def _send(self, page: int, count: int, steps: Steps, cut: bytes) -> None:
        self._sequence += 1
        self._finals.take(len(next(iter(steps.finals.values()), ())))
        message = Commit(
            writer=self._writer,
            sequence=self._sequence,
            page=page,
            steps=count,
            versions=packed(steps.versions, POLICY_VERSIONS),
            final=packed(steps.final),
            idle=packed(steps.idle),
            ended=packed(steps.ended),
            cut=cut,
            final_rows=packed(self._finals.report()),
        )
        self._commit(message, steps.columns, steps.finals)

    def cut(self, lanes: NDArray[np.integer], finals: Columns) -> None:
        """Ends the open episodes of these lanes.

        Args:
            lanes: int64[m], rising.
            finals: maps each column to `[m, ...]`: the final rows.
        """
        if lanes.size:
            nothing = np.empty(0, np.int64)
            steps = Steps({}, np.empty(0, np.int32), nothing, nothing, nothing, finals)
            self._send(self._pages[0], 0, steps, packed(lanes))
