"""Base of the observers of frames: the protocol of calls, waiting, closing and counting.

An observer takes the frames of one environment, one a call, and turns each run of them (the frames of one episode, or
what came of it) into items of one or more tables. Which items, the classes derived from this one say.
"""

from __future__ import annotations

import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headrace.checks import check_timeout, shown
from headrace.errors import Closed, DeadlineExceeded, SpecError, StoreFull
from headrace.forking import HomeProcess
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.statistics import StepStatistics
from headrace.tables.description.rules import check_priority
from headrace.trajectories.frames import StepType
from headrace.trajectories.leaving import note_failure
from headrace.trajectories.observer_frames import FIRST, LAST, MID, Columns, FrameReader

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike

# Items of one observer that may wait for the rate limiters of its tables, before a call waits too (replay I4).
MAX_PENDING = 1000
# A writer that never waits by itself: an observer waits when it has taken the frame (trajectories O10).
_NEVER_WAITS = 1 << 62
_NO_RUN = -1
# By the next_step_type of a frame: which step_type comes after it. The boundary ends the run.
AFTER = (_NO_RUN, MID, LAST)
# Invented rows are boundary frames (trajectories M2).
_PADDING = {"step_type": LAST, "next_step_type": FIRST}


class Observer(ABC):
    """One environment's frames on their way into tables; see the classes derived from it.

    Args:
        py_client: a `Replay`, or an object with its interface (`ReplayLike`).
        table_name: one name, or several: every item is made in each, of the same rows.
        priority: of every item.
        timeout: seconds that a call may wait for a full table.
    """

    def __init__(
        self, py_client: ReplayLike, table_name: str | Sequence[str], priority: float, timeout: float | None
    ) -> None:
        self._writer: WriterLike | None = None
        self._cached = 0
        check_replay("py_client", py_client, TO_WRITE)
        self._tables = _checked_tables(py_client, table_name)
        self._priority = checked_priority(priority)
        self._timeout = check_timeout(timeout)
        self._frames = FrameReader(py_client.signature)
        self._replay = py_client
        self._home = HomeProcess("this observer", "")
        self._in_use = threading.Lock()
        self._expected = _NO_RUN
        self._keys: list[int] = []
        # Kept the item of a run out of its table.
        self._refused: StoreFull | None = None
        self._steps_written = self._items_written = self._steps_dropped = self._episodes = 0

    # ---- what the observers differ in ------------------------------------------------------------------------------

    @abstractmethod
    def _new_writer(self) -> WriterLike:
        """A writer for the items of this observer."""

    @abstractmethod
    def _take(self, writer: WriterLike, columns: Columns, next_step_type: int) -> None:
        """Take one frame into the current run, and end the run if it is the boundary."""

    @abstractmethod
    def _end_run(self, writer: WriterLike) -> str:
        """End the current run here and make the items that are still to be made of it.

        Returns:
            The text of a warning if no boundary ended it; "" for nothing.
        """

    @abstractmethod
    def _drop_run(self, writer: WriterLike) -> None:
        """End the current run and make no further item of it."""

    def _interrupt_run(self, writer: WriterLike) -> str:
        """Another episode begins in the middle of the current run: end it, as `_end_run` does."""
        return self._end_run(writer)

    @abstractmethod
    def _unwritten(self) -> int:
        """How many frames of the current run its end would write into further items, or drop."""

    # ---- calls -----------------------------------------------------------------------------------------------------

    def __call__(self, trajectory: Any) -> list[int]:
        """Take one frame: store it once, and make the items that it completes in every table.

        Args:
            trajectory: a `Trajectory`, a mapping from column names to values (what `Signature.flatten` gives), or a
                plain list or tuple of leaves in the order of `Signature.columns`; without a batch dimension.

        Returns:
            The keys of the items, table by table for each window; those of a call that raised DeadlineExceeded come
            with the next one.

        Raises:
            SpecError: the frame does not fit the signature, or is a batch; nothing changed.
            ValueError: it cannot follow the frame before it, or has step types of no frame; nothing changed.
            StoreFull: no room for the frame, and nothing changed; send it again when items have left. Or no room for
                its items: then it says that the frame was stored.
            DeadlineExceeded: the tables were full for `timeout` seconds; the frame was taken, do not send it again.
            Closed: the observer is closed.
        """
        # Does the work of `_alone` and `_open_writer` without their cost, because it is called at every step.
        if not self._in_use.acquire(False):
            raise _busy()
        try:
            writer = self._writer
            if writer is None:
                raise _closed()
            columns = self._frames.read(trajectory)
            step_type, next_step_type = self._frames.step_types(columns)
            pending = writer.pending
            if step_type != self._expected and self._expected != _NO_RUN:
                self._restart(writer, columns, step_type)
            try:
                self._take(writer, columns, next_step_type)
            except SpecError as error:
                raise self._frames.explained(error, columns) from None
            self._expected = AFTER[next_step_type]
            self._raise_refused(writer)
            if pending >= MAX_PENDING:
                self._wait_for_room(writer, pending)
            keys, self._keys = self._keys, []
            return keys
        finally:
            self._in_use.release()

    def _restart(self, writer: WriterLike, columns: Columns, step_type: int) -> None:
        """A frame that does not continue the run: the first of another, or a mistake."""
        # Rules: trajectories O6
        if step_type != FIRST:
            expected, got = StepType(self._expected).name, StepType(step_type).name
            raise ValueError(
                f"step_type: expected {expected}, the next_step_type of the frame before, or FIRST, which begins "
                f"another episode; got {got}. Nothing was taken; after reset() any frame may follow"
            )
        self._frames.check(columns)
        writer.make_room()
        warning = self._interrupt_run(writer)
        self._expected = _NO_RUN
        _warn(warning, 4)

    def reset(self, write_cached_steps: bool = True) -> list[int]:
        """End the current run here; the next frame begins another.

        Args:
            write_cached_steps: True makes the items that are still to be made of the run, as if it ended here, and
                warns of frames that end in none. False drops what is in no item yet.

        Returns:
            The keys of the items that this made.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the run is over all the same.
            Closed: the observer is closed.
        """
        with self._alone():
            writer = self._open_writer()
            self._check_replay()
            pending = writer.pending
            warning = ""
            if write_cached_steps:
                warning = self._end_run(writer)
            else:
                self._drop_run(writer)
            self._expected = _NO_RUN
            _warn(warning, 3)
            self._raise_refused(writer)
            self._wait_for_room(writer, pending)
            keys, self._keys = self._keys, []
            return keys

    def flush(self, timeout: float | None = None) -> None:
        """Return when every item made so far is in its tables.

        Args:
            timeout: in seconds; None waits for ever.

        Raises:
            DeadlineExceeded: tells how many items wait for which table; they stay pending.
            Closed: the observer or the replay is closed.
        """
        with self._alone():
            self._open_writer().flush(timeout)

    # ---- opening and closing ---------------------------------------------------------------------------------------

    def open(self) -> None:
        """Make a closed observer usable again, with an empty run; does nothing on an open one."""
        with self._alone():
            if self._writer is None:
                self._refused = None
                self._writer = self._new_writer()

    def close(self) -> None:
        """End the current run as `reset(True)`; return when every item is in its tables. A second call does nothing.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the items stay pending, and the observer stays
                open so that it can be closed again.
            Closed: the replay was closed before all items were in.
        """
        with self._alone():
            writer = self._writer
            if writer is None:
                return
            self._check_home()
            try:
                self._check_replay()
                warning = self._end_run(writer)
                self._expected = _NO_RUN
                try:
                    writer.close(self._timeout)
                finally:
                    _warn(warning, 3)
            except Closed:
                self._forget_writer()
                raise
            self._forget_writer()
            self._raise_refused(writer)

    def _forget_writer(self) -> None:
        self._writer = None
        self._cached = 0
        self._expected = _NO_RUN
        self._keys = []

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
            warning = ""
            if not self._replay.is_closed:
                cached = self._cached
                try:
                    warning = self._end_run(writer)
                except Exception as failure:
                    note_failure(error, cached, failure)
            self._forget_writer()
            # Waits for nothing, and tells what is pending (replay I6).
            writer.abandon()
            _warn(warning, 3)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # Nothing here works any more, numbers and messages included.
        # An observer that was never built has no run.
        if not getattr(self, "_cached", 0) or self._home.is_elsewhere:
            return
        if unwritten := self._unwritten():
            warnings.warn(
                f"{self!r} was garbage-collected in the middle of an episode: {unwritten} of the {self._cached} frames "
                "of its run were not written as they would have been by close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    # ---- counting --------------------------------------------------------------------------------------------------

    def statistics(self) -> StepStatistics:
        """Returns the counters so far, and the number of frames in the current run."""
        self._check_home()
        return StepStatistics(
            self._steps_written, self._items_written, self._steps_dropped, self._episodes, self._cached
        )

    def _describe(self, **settings: Any) -> str:
        tables = ", ".join(map(repr, self._tables))
        numbers = ", ".join(f"{name}={shown(value)}" for name, value in settings.items())
        state = "closed" if self._writer is None else f"open, {self._cached} frames cached"
        return f"<{type(self).__name__} for {tables}: {numbers}, {state}>"

    # ---- parts -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse a call while another thread, or this one further out, is in one."""
        # Rules: trajectories U2
        if not self._in_use.acquire(False):
            raise _busy()
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

    def _check_replay(self) -> None:
        if self._replay.is_closed:
            raise Closed(f"the replay is closed; {self._cached} frames of this observer's run are lost")

    def _writer_of(self, **settings: Any) -> WriterLike:
        """A new writer of the replay, whose invented rows are boundary frames."""
        writer = self._replay.row_writer(**settings, max_pending=_NEVER_WAITS)
        for table in self._tables:
            writer.declare_padding(table, _PADDING)
        return writer

    def _raise_refused(self, writer: WriterLike) -> None:
        """Raise what kept items out of their tables, once; their frames are stored."""
        error, self._refused = self._refused, None
        if error is not None:
            raise error
        writer.raise_refused()

    def _run_ended(self, dropped: int) -> None:
        self._episodes += 1
        self._steps_dropped += dropped
        self._cached = 0

    def _made(self, keys: list[int]) -> None:
        self._items_written += len(keys)
        self._keys += keys

    def _wait_for_room(self, writer: WriterLike, pending: int) -> None:
        """Wait until there was room for what this call made, which found so many items pending."""
        # Rules: replay I4
        new = writer.pending - pending
        if pending < MAX_PENDING or new <= 0:
            return
        try:
            writer.wait_pending(MAX_PENDING - 1 + new, self._timeout)
        except DeadlineExceeded as error:
            raise DeadlineExceeded(
                f"{error}. What this call was given was taken: do not send it again", pending=error.pending
            ) from None


def _closed() -> Closed:
    return Closed("the observer is closed; open() makes it usable again")


def _busy() -> ValueError:
    return ValueError("this observer is in use by another call; each thread needs an observer of its own")


def _warn(warning: str, stacklevel: int) -> None:
    if warning:
        warnings.warn(warning, stacklevel=stacklevel)


def checked_priority(priority: float) -> float:
    """A priority as a float.

    Raises:
        TypeError: no number.
        ValueError: negative or not finite.
    """
    if isinstance(priority, bool) or not hasattr(priority, "__float__"):
        raise TypeError(f"priority: expected a finite number >= 0, got {shown(priority)}")
    check_priority(float(priority))
    return float(priority)


def _checked_tables(py_client: ReplayLike, table_name: str | Sequence[str]) -> tuple[str, ...]:
    names = (table_name,) if isinstance(table_name, str) else table_name
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"table_name: expected a name or a list of names, got {table_name!r}")
    if not names:
        raise ValueError("table_name: expected at least one name, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"table_name: expected different names, got {', '.join(map(repr, names))}")
    for name in names:
        py_client.table(name)
    return tuple(names)
