"""Whole episodes of frames, one item each."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.checks import check_count
from headrace.tables.description.rules import Rule, WholeEpisodes
from headrace.trajectories.observers.frame_reader import FIRST, Columns
from headrace.trajectories.observers.observer import AFTER, Observer, checked_priority

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike


class AddEpisodeObserver(Observer):
    """Writes each episode as one item of all its frames, the boundary included.

    Call it with each frame of one environment. It is a context manager: leaving it closes it, and the frames of an
    unfinished episode are written as one item.

    Args:
        py_client: a `Replay`, or an object with its interface (`ReplayLike`); its signature is that of one frame, a
            `Trajectory`.
        table_name: one name, or several: every item is made in each of them.
        max_sequence_length: largest number of frames of an episode. One of T transitions has T + 1.
        priority: of every item; `update_priority` changes it for later ones.
        bypass_partial_episodes: of an episode that is too long nothing is written. False: a ValueError once for each,
            at the frame too many; True: a warning. With True an episode that another one interrupts is not written.
        timeout: seconds that a call may wait when 1000 items of this observer wait for full tables; None waits for
            ever.

    Raises:
        SpecError: the signature is not that of a frame.
        KeyError: no such table.
        ValueError: a number out of range, a name twice.
        TypeError: an argument of another kind.

    >>> import headrace as hr
    >>> import numpy as np
    >>> def frame(t, step_type, next_step_type):
    ...     return hr.Trajectory(step_type, np.float32(t), 0, (), next_step_type, 1.0, 1.0)
    >>> replay = hr.Replay(hr.Signature.like(frame(0, 0, 1)), [hr.Table.queue("t", 100)])
    >>> with hr.AddEpisodeObserver(replay, "t", max_sequence_length=1000) as observer:
    ...     [len(observer(frame(t, *kind))) for t, kind in enumerate([(0, 1), (1, 2), (2, 0)])]
    [0, 0, 1]
    >>> replay.sample("t", 1).data.observation.tolist()
    [[0.0, 1.0, 2.0]]
    >>> replay.close()
    """

    def __init__(
        self,
        py_client: ReplayLike,
        table_name: str | Sequence[str],
        max_sequence_length: int,
        priority: float = 1,
        bypass_partial_episodes: bool = False,
        *,
        timeout: float | None = None,
    ) -> None:
        super().__init__(py_client, table_name, priority, timeout)
        self._most = check_count("max_sequence_length", max_sequence_length, 1)
        if not isinstance(bypass_partial_episodes, bool):
            raise TypeError(
                f"bypass_partial_episodes: expected True or False, got {bypass_partial_episodes!r}"
            )
        self._bypasses = bypass_partial_episodes
        # Whether the rest of an episode that is too long is being ignored.
        self._ignores = False
        self._writer = self._new_writer()

    def update_priority(self, priority: float) -> None:
        """Gives later items another priority.

        Raises:
            TypeError: no number.
            ValueError: negative or not finite; nothing changed.
        """
        self._priority = checked_priority(priority)

    def _item_rules(self) -> list[Rule]:
        return [WholeEpisodes(table, self._most) for table in self._tables]

    def _take(self, writer: WriterLike, columns: Columns, next_step_type: int) -> None:
        is_boundary = next_step_type == FIRST
        if self._ignores or self._cached == self._most:
            self._frames.check(columns)
            self._check_replay()
            self._counters.steps_dropped += 1
            if self._ignores:
                self._ignores = not is_boundary
            else:
                self._give_up(writer, next_step_type)
            return
        writer.append(columns)
        self._counters.steps_written += 1
        self._cached += 1
        if is_boundary:
            self._end_run(writer)

    def _give_up(self, writer: WriterLike, next_step_type: int) -> None:
        """Handles one frame too many: nothing of this episode is written."""
        # Rules: trajectories E2
        self._drop_run(writer)
        self._ignores = next_step_type != FIRST
        self._expected = AFTER[next_step_type]
        message = (
            f"an episode has more than max_sequence_length={self._most} frames, and nothing of it is written. An "
            "episode of T transitions has T + 1 frames, the boundary included: set max_sequence_length to the longest "
            "episode's transitions + 1. The next episode is recorded whole"
        )
        if not self._bypasses:
            raise ValueError(message)
        warnings.warn(message, stacklevel=4)

    def _end_run(self, writer: WriterLike) -> str:
        self._ignores = False
        if self._cached:
            priority = np.array([self._priority])
            writer.give_priorities(dict.fromkeys(range(len(self._tables)), priority))
            writer.cut_open_lanes()
            self._run_ended(0)
        return ""

    def _drop_run(self, writer: WriterLike) -> None:
        self._ignores = False
        if self._cached:
            writer.drop_open_lanes()
            self._run_ended(self._cached)

    def _interrupt_run(self, writer: WriterLike) -> str:
        if not self._bypasses:
            return self._end_run(writer)
        self._drop_run(writer)
        return ""

    def _forget_writer(self) -> None:
        super()._forget_writer()
        self._ignores = False

    def __repr__(self) -> str:
        return self._describe(
            max_sequence_length=self._most, priority=self._priority, bypass_partial_episodes=self._bypasses
        )
