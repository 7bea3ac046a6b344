"""Steps in, items out: the writer for environments that are stepped one call at a time, one copy or many."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, check_timeout
from headrace.errors import Closed
from headrace.forking import HomeProcess
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.statistics import StepStatistics
from headrace.trajectories.episode import Episode
from headrace.trajectories.episode_limits import EpisodeLimits
from headrace.trajectories.episode_steps import EpisodeSteps
from headrace.trajectories.lane_states import autoreset_mode, checked_mask
from headrace.trajectories.leaving import note_failure
from headrace.trajectories.made_items import MadeItems
from headrace.trajectories.step_rules import StepRule, advice, checked_step_rules, writer_rule
from headrace.trajectories.step_taker import StepTaker

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike

# A writer of rows that never waits by itself: a step writer waits when it has taken the step (trajectories O10).
_NEVER_WAITS = 1 << 62


class StepWriter:
    """Turns steps of an environment, or of `lanes` copies of one, into items of any number of tables.

    `add_first` opens an episode with its first observation; each `add` brings an action and what followed. A step is
    stored once for all tables. Leaving the context closes the writer; an unfinished episode is then written as if it
    were cut there.

    Args:
        replay: a `Replay`, or an object with its interface (`ReplayLike`). Its signature is a mapping with
            `observation`, `action`, `reward`, `terminated`, `truncated` and, if they are used, `extras`.
        rules: what becomes items: `ItemRule` (windows), `NStepRule` (transitions), `EpisodeRule` (whole episodes),
            `PatternRule` (columns at offsets, under conditions).
        lanes: copies side by side: every leaf then has a leading axis of this size. None: one, without such an axis.
        autoreset: what the copies do when an episode ends: "next_step", "same_step", "disabled", or gymnasium's
            `AutoresetMode`; needed with lanes, None without.
        timeout: seconds that a call may wait when 1000 items of this writer wait for full tables; None waits for ever.

    Raises:
        SpecError: a column of the signature is missing, or is one that no call fills; a pattern reads an unknown one.
        KeyError: no such table.
        ValueError: `autoreset` is missing or unknown; a number out of range.
        TypeError: an argument of another kind.

    >>> import headrace as hr
    >>> step = {"observation": np.float32(0), "action": 0, "reward": 0.0, "terminated": False, "truncated": False}
    >>> fifo = hr.selectors.Fifo()
    >>> tables = [hr.Table(name, sampler=fifo, remover=fifo, max_size=100) for name in ("transitions", "episodes")]
    >>> replay = hr.Replay(hr.Signature.like(step), tables)
    >>> rules = [hr.NStepRule("transitions", n_step=2), hr.EpisodeRule("episodes", max_length=100)]
    >>> with hr.StepWriter(replay, rules) as writer:
    ...     writer.add_first(np.float32(0))
    ...     for t in range(3):
    ...         keys = writer.add(t, 1.0, t == 2, False, np.float32(t + 1))
    >>> len(replay.table("transitions")), replay.sample("episodes", 1).data["observation"].tolist()
    (3, [[0.0, 1.0, 2.0, 3.0]])
    >>> replay.close()
    """

    def __init__(
        self,
        replay: ReplayLike,
        rules: Sequence[StepRule],
        *,
        lanes: int | None = None,
        autoreset: Any = None,
        timeout: float | None = None,
    ) -> None:
        self._writer: WriterLike | None = None
        check_replay("replay", replay, TO_WRITE)
        self.rules = checked_step_rules(rules)
        self._lanes = None if lanes is None else check_count("lanes", lanes, 1)
        mode = autoreset_mode(autoreset, self._lanes)
        self._timeout = check_timeout(timeout)
        self._replay = replay
        self._home = HomeProcess("this writer", "")
        made_of = [writer_rule(rule) for rule in self.rules]
        self._taker = StepTaker(replay.signature, self.rules, made_of, self._lanes, mode)
        self._limits = EpisodeLimits(self.rules, self._taker.states, self._lanes)
        self._in_use = threading.Lock()
        self._made = MadeItems()
        self._writer = replay.row_writer(self._lanes or 1, items=made_of, max_pending=_NEVER_WAITS)
        self._taker.hold_in(self._writer.staged)
        self._writer.record_items()

    # ---- calls -----------------------------------------------------------------------------------------------------

    def add_first(self, observation: Any, extras: Any = None, mask: Any = None) -> None:
        """Open an episode with its first observation.

        Args:
            observation: as in the signature; with lanes every leaf is `[lanes, ...]`.
            extras: those that come with observations; which these are is settled by the first call.
            mask: bool[lanes], the lanes that are opened; only their rows are looked at. None is all.

        Raises:
            ValueError: an episode is unfinished; a mask where there is none; nothing changed.
            SpecError: something does not fit; nothing changed.
            Closed: the writer is closed.
        """
        with self._alone():
            writer = self._open_writer()
            self._taker.open(writer, observation, extras, checked_mask(mask, self._lanes))
            self._limits.watch()

    def add(
        self,
        action: Any,
        reward: Any,
        terminated: Any,
        truncated: Any,
        next_observation: Any,
        extras: Any = None,
        final_observation: Any = None,
    ) -> list[int]:
        """Take what an action did. With lanes every leaf has them as its first axis.

        Args:
            action: that was taken.
            reward: that followed.
            terminated, truncated: whether the episode ended, and was cut off; both may be set.
            next_observation: that followed. Where a lane is reset in the same step, the first of its next episode.
            extras: all of them; those that `add_first` names belong to `next_observation`.
            final_observation: with autoreset="same_step" the last observations of the lanes that ended.

        Returns:
            The keys of the items that this made, in order; those of a call that raised DeadlineExceeded come with the
            next one.

        Raises:
            ValueError: a lane has no open episode, is to be reset, has no final observation, or is too long for an
                `EpisodeRule`; a function gave no priority, or a condition no bool. Nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull: no page for the step, and it was not taken; send it again when items have left. Or no page for
                its items: then it says that the step was stored.
            DeadlineExceeded: the tables were full for `timeout` seconds; the step was taken, do not send it again.
            Closed: the writer is closed.
        """
        # Does the work of `_alone` without its cost.
        if not self._in_use.acquire(blocking=False):
            raise _used_twice()
        try:
            writer = self._writer
            if writer is None:
                raise _closed()
            taker, limits = self._taker, self._limits
            following = taker.read((reward, terminated, truncated), action, next_observation, extras)
            at_limit = taker.states.calls >= limits.next_call
            warning = limits.check() if at_limit else ""
            pending = writer.pending
            if taker.take(writer, following, final_observation) or at_limit:
                limits.watch()
            return self._done(writer, pending, warning)
        finally:
            self._in_use.release()

    # ---- whole episodes and resets ---------------------------------------------------------------------------------

    def add_episode(self, episode: Episode) -> list[int]:
        """Add a recorded episode: all of its steps, and `reset` if it has no end.

        Returns:
            The keys of the items that this made.

        Raises:
            ValueError: an episode is unfinished, this one is too long for an `EpisodeRule`, or the writer has lanes;
                nothing changed.
            SpecError: something does not fit; nothing changed.
            StoreFull, DeadlineExceeded: as `add`, in the middle of the episode.
        """
        with self._alone():
            self._open_writer()
            if self._lanes is not None:
                raise ValueError(
                    "add_episode: expected a writer without lanes: each lane's environment adds by itself"
                )
            taker = self._taker
            taker.states.lanes_to_open(None)
            steps = EpisodeSteps(
                self._replay.signature, taker.columns, episode, taker.with_observation, self._limits.longest
            )
        self.add_first(*steps.first)
        keys = [key for step in steps for key in self.add(*step)]
        return keys if episode.terminated or episode.truncated else keys + self.reset()

    def reset(self, write_cached_steps: bool = True, mask: Any = None) -> list[int]:
        """End unfinished episodes here. Each lane then needs `add_first`.

        Args:
            write_cached_steps: True ends them as cut: the last observation is stored as the final row, no flag is set,
                and the remaining items are made. False drops what no item needs.
            mask: bool[lanes], the lanes; None is all.

        Returns:
            The keys of the items that this made.

        Raises:
            StoreFull: no page for the final rows; nothing changed.
            DeadlineExceeded: the tables were full for `timeout` seconds; the episodes are over all the same.
            Closed: the writer is closed.
        """
        with self._alone():
            writer = self._open_writer()
            chosen = checked_mask(mask, self._lanes)
            self._replay.check_open()
            pending = writer.pending
            warning = self._end(writer, bool(write_cached_steps), chosen)
            return self._done(writer, pending, warning)

    def _end(self, writer: WriterLike, writes: bool = True, mask: NDArray[np.bool_] | None = None) -> str:
        """End the episodes of some lanes, None is all, and their streams; returns what there is to warn of."""
        taker = self._taker
        lanes = np.arange(self._lanes or 1) if mask is None else np.flatnonzero(mask)
        dropped = taker.cut(writer, lanes) if writes else taker.drop(writer, lanes)
        self._limits.watch()
        if not dropped or not writes:
            return ""
        return f"{dropped} steps are in no item and were dropped. To keep them: {advice(self.rules)}"

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Return when every item made so far is in its tables.

        Args:
            timeout: in seconds; None waits for ever.

        Raises:
            DeadlineExceeded: tells how many items wait for which table; they stay pending.
            Closed: the writer or the replay is closed.
        """
        with self._alone():
            self._open_writer().flush(timeout)

    def close(self) -> None:
        """End unfinished episodes as `reset` does; return when every item is in its tables. A second call does nothing.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the items stay pending, and the writer stays
                open so that it can be closed again.
            Closed: the replay was closed before all items were in.
        """
        with self._alone():
            writer = self._writer
            if writer is None:
                return
            self._check_home()
            try:
                if self._replay.is_closed:
                    raise Closed(
                        f"the replay is closed; {self._taker.states.cached} steps of unfinished episodes are lost"
                    )
                warning = self._end(writer)
                try:
                    writer.close(self._timeout)
                finally:
                    self._made.note(writer)
                    _warn(warning, 3)
            except Closed:
                self._writer = None
                raise
            self._writer = None
            writer.raise_refused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return
        with self._alone():
            writer = self._writer
            if writer is None:
                return
            self._writer = None
            warning = ""
            if not self._replay.is_closed:
                try:
                    warning = self._end(writer)
                    self._made.note(writer)
                except Exception as failure:
                    note_failure(error, self._taker.states.cached, failure)
            # Waits for nothing, and tells what is pending (replay I6).
            writer.abandon()
            _warn(warning, 3)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # Nothing here works any more, numbers and messages included.
        # A writer that was never built has no steps.
        if getattr(self, "_writer", None) is None or self._home.is_elsewhere:
            return
        if cached := self._taker.states.cached:
            warnings.warn(
                f"{self!r} was garbage-collected with {cached} steps of unfinished episodes, which were not written as "
                "they would have been by close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # ---- counting --------------------------------------------------------------------------------------------------

    def statistics(self) -> StepStatistics:
        """Returns the counters so far, and the number of steps in unfinished episodes."""
        self._check_home()
        taker = self._taker
        cached = 0 if self._writer is None else taker.states.cached
        return StepStatistics(
            taker.steps_written, self._made.count, taker.steps_dropped, taker.episodes, cached
        )

    def __repr__(self) -> str:
        rules = ", ".join(map(repr, self.rules))
        state = "closed" if self._writer is None else f"open, {self._taker.states.cached} steps cached"
        lanes = "" if self._lanes is None else f", {self._lanes} lanes, {self._taker.states.mode}"
        return f"<{type(self).__name__} of {rules}{lanes}, {state}>"

    # ---- parts -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a call while another thread is in one."""
        # Rules: trajectories U2
        if not self._in_use.acquire(blocking=False):
            raise _used_twice()
        try:
            yield
        finally:
            self._in_use.release()

    def _open_writer(self) -> WriterLike:
        if self._writer is None:
            raise _closed()
        self._check_home()
        return self._writer

    def _check_home(self) -> None:
        """Raise `RuntimeError` in a process that was forked from the one of the replay."""
        if self._home.is_elsewhere:
            self._replay.check_open()

    def _done(self, writer: WriterLike, pending: int, warning: str) -> list[int]:
        """Count, warn and wait if there is reason to; returns the keys that were not told yet."""
        self._made.note(writer)
        if warning:
            _warn(warning, 4)
        writer.raise_refused()
        return self._made.tell(writer, pending, self._timeout)


def _closed() -> Closed:
    return Closed("the writer is closed")


def _used_twice() -> ValueError:
    return ValueError("this writer is in use by another call; each thread needs a writer of its own")


def _warn(warning: str, stacklevel: int) -> None:
    if warning:
        warnings.warn(warning, stacklevel=stacklevel)
