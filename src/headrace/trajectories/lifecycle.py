"""Life of an object that records episodes into a replay: one call at a time, waiting, closing and counting."""

from __future__ import annotations

import functools
import sys
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, Self, TypeVar

from headrace.checks import check_timeout
from headrace.errors import Closed, DeadlineExceeded, HeadraceError
from headrace.forking import HomeProcess
from headrace.replay.intake.later_made import LaterMade
from headrace.replay.interface import TO_WRITE, check_replay
from headrace.statistics import StepStatistics
from headrace.trajectories.later_keys import LaterKeys

if TYPE_CHECKING:
    from headrace.replay.intake.writer_like import Made
    from headrace.replay.interface import ReplayLike, WriterLike

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound="Recorder")

# Items of one recorder that may wait for the rate limiters of its tables, before a call waits too (replay I4).
MAX_PENDING = 1000
NEVER_WAITS = 1 << 62
"""`max_pending` of a writer of rows that never waits: its recorder waits, once it has taken the step."""


def alone(call: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Makes a method refuse a call while another thread, or a call further out, is in one."""
    # Rules: trajectories U2

    @functools.wraps(call)
    def guarded(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._in_use:
            raise self._busy()
        # No call since the look, and none until the `try`: Ctrl-C or another thread could come after one.
        self._in_use = True
        try:
            return call(self, *args, **kwargs)
        finally:
            self._in_use = False

    return guarded


@dataclass(slots=True)
class Counters:
    """Counters of a recorder; see `StepStatistics`."""

    steps_written: int = 0
    items_written: int = 0
    steps_dropped: int = 0
    episodes: int = 0


class Recorder(ABC):
    """Base of step writers and observers, which record episodes with a writer of rows.

    Args:
        argument: name of the argument `replay`, for messages.
        replay: a `Replay`, or an object with its interface (`ReplayLike`).
        timeout: seconds that a call may wait for full tables; None waits for ever.
    """

    # Names of the object and of its rows in messages, and how it is used again once it is closed.
    _noun: ClassVar[str] = "writer"
    _rows: ClassVar[str] = "steps"
    _reopening: ClassVar[str] = ""
    # Number of rules that differ only in their tables: their keys are returned table by table for each window.
    _num_alike = 1

    def __init__(self, argument: str, replay: ReplayLike, timeout: float | None) -> None:
        self._writer: WriterLike | None = None
        check_replay(argument, replay, TO_WRITE)
        self._replay = replay
        self._timeout = check_timeout(timeout)
        self._home = HomeProcess(f"this {self._noun}", "")
        # Whether a call is in progress; see `alone`.
        self._in_use = False
        self._counters = Counters()
        # Keys of items that no call has returned yet.
        self._keys: list[int] = []
        # Items of which a server may not have told yet: those that no call has returned, and all that are not counted.
        self._later_made: list[Sequence[Made]] = []
        self._uncounted: deque[Sequence[Made]] = deque()

    # ---- differences between recorders -----------------------------------------------------------------------------

    @abstractmethod
    def _num_cached(self) -> int:
        """Returns the number of rows of unfinished episodes."""

    @abstractmethod
    def _end_all(self) -> str:
        """Ends all unfinished episodes here and makes their remaining items.

        Returns:
            The text of a warning about rows in no item; "" for none.
        """

    @abstractmethod
    def _unwritten(self) -> str:
        """Describes the rows that garbage collection leaves unwritten; "" for none."""

    def _forget_writer(self) -> None:
        """Changes to the closed state."""
        self._writer = None
        self._keys, self._later_made = [], []

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @alone
    def flush(self, timeout: float | None = None) -> None:
        """Returns when every item made so far is in its tables.

        Args:
            timeout: in seconds; None waits for ever.

        Raises:
            DeadlineExceeded: tells how many items wait for which table; they stay pending.
            Closed: this object or the replay is closed.
        """
        self._open_writer().flush(timeout)

    @alone
    def close(self) -> None:
        """Ends unfinished episodes as `reset()`; returns when every item is in its tables. A second call does nothing.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the items stay pending, and this object stays
                open so that it can be closed again.
            Closed: the replay was closed before all items were in.
        """
        writer = self._writer
        if writer is None:
            return
        self._check_home()
        try:
            self._check_replay()
            warning = self._end_all()
            try:
                writer.close(self._timeout)
            finally:
                self._note_made(writer.take_made())
                self._count_later()
                if warning:
                    warnings.warn(warning, stacklevel=3)
        except Closed:
            self._forget_writer()
            # Otherwise an interrupted call has closed the writer of rows already.
            if self._replay.is_closed:
                raise
            return
        self._forget_writer()
        writer.raise_refused()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._abandon(error)

    @alone
    def _abandon(self, error: BaseException) -> None:
        """Closes without waiting, because of an error in the `with` block."""
        writer = self._writer
        if writer is None:
            return
        cached, warning = self._num_cached(), ""
        try:
            if not self._replay.is_closed:
                warning = self._end_all()
                self._note_made(writer.take_made())
        except Exception as failure:
            # A note, because the failure must not replace the user's exception.
            error.add_note(
                f"Leaving the {self._noun}, the ends of its unfinished episodes ({cached} {self._rows}) could not "
                f"be written: {type(failure).__name__}: {failure}"
            )
        self._forget_writer()
        # Waits for nothing, and tells what is pending (replay I6).
        writer.abandon()
        if warning:
            warnings.warn(warning, stacklevel=4)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():
            return  # Nothing here works any more, numbers and messages included.
        # The constructor of the object may have failed.
        if getattr(self, "_writer", None) is None or self._home.is_elsewhere:
            return
        if unwritten := self._unwritten():
            warnings.warn(
                f"{self!r} was garbage-collected {unwritten} not written as they would have been by close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def statistics(self) -> StepStatistics:
        """Returns the counters so far, and the number of rows in unfinished episodes; a client waits for its server."""
        self._check_home()
        self._count_later()
        counters, cached = self._counters, 0 if self._writer is None else self._num_cached()
        return StepStatistics(
            counters.steps_written, counters.items_written, counters.steps_dropped, counters.episodes, cached
        )

    # ---- parts of calls --------------------------------------------------------------------------------------------

    def _busy(self) -> ValueError:
        return ValueError(
            f"this {self._noun} is in use by another call; each thread needs {self._noun}s of its own"
        )

    def _closed(self) -> Closed:
        return Closed(f"the {self._noun} is closed{self._reopening}")

    def _open_writer(self) -> WriterLike:
        if self._writer is None:
            raise self._closed()
        self._check_home()
        return self._writer

    def _check_home(self) -> None:
        """Raises `RuntimeError` in a process that was forked from the one of the replay."""
        if self._home.is_elsewhere:
            self._replay.check_open()

    def _check_replay(self) -> None:
        if self._replay.is_closed:
            raise Closed(
                f"the replay is closed; {self._num_cached()} {self._rows} of unfinished episodes are lost"
            )

    def _finish(
        self, writer: WriterLike, pending: int, warning: str = "", stacklevel: int = 3
    ) -> Sequence[int]:
        """Counts, warns and waits after a call; returns the keys that no call has returned yet.

        Args:
            pending: number of items that waited before the call.
            warning: its text; "" for none.
            stacklevel: of the warning, as `warnings.warn` counts.

        Raises:
            DeadlineExceeded: the tables stayed full until the deadline; the next call returns the keys.
        """
        made = writer.take_made()
        if type(made) is not list or made:
            self._note_made(made)
        if warning:
            warnings.warn(warning, stacklevel=stacklevel)
        writer.raise_refused()
        if pending >= MAX_PENDING:
            try:
                self._wait_for_tables(writer, pending)
            except DeadlineExceeded as error:
                raise DeadlineExceeded(
                    f"{error}. The input of this call was taken: do not send it again",
                    pending=error.pending,
                ) from None
        return self._take_keys()

    def _take_keys(self) -> Sequence[int]:
        """Returns the keys that no call has returned yet; a look at those of a server waits for it."""
        keys, self._keys = self._keys, []
        if not self._later_made:
            return keys
        later, self._later_made = self._later_made, []
        return LaterKeys(
            lambda: keys + [key for made in later for _, some in self._in_order(made) for key in some]
        )

    def _wait_for_tables(self, writer: WriterLike, pending: int) -> None:
        """Waits until no more items are pending than before a call, of which there were `pending`.

        Raises:
            DeadlineExceeded: the tables stayed full until the deadline.
        """
        # Rules: replay I4
        if pending >= MAX_PENDING and writer.pending > pending:
            writer.wait_pending(MAX_PENDING - 1 + writer.pending - pending, self._timeout)

    def _note_made(self, made: Sequence[Made]) -> None:
        """Counts items, and keeps their keys for the caller; waits for no server that has not told of them yet."""
        if self._later_made or type(made) is not list:
            self._later_made.append(made)
            self._uncounted.append(made)
            while self._uncounted and _is_known(self._uncounted[0]):
                self._count_first()
            return
        for _, keys in self._in_order(made):
            self._counters.items_written += len(keys)
            self._keys += keys

    def _count_later(self) -> None:
        """Counts the items of all calls, as far as the server tells."""
        with suppress(HeadraceError):
            while self._uncounted:
                self._count_first()

    def _count_first(self) -> None:
        self._counters.items_written += sum(len(keys) for _, keys in self._uncounted[0])
        self._uncounted.popleft()

    def _in_order(self, made: Sequence[Made]) -> Sequence[Made]:
        return made if self._num_alike == 1 else _window_by_window(made, self._num_alike)


def _is_known(made: Sequence[Made]) -> bool:
    return not isinstance(made, LaterMade) or made.is_known


def _window_by_window(made: Sequence[Made], tables: int) -> list[Made]:
    """Orders the items of rules that differ only in their tables: table by table for each window."""
    found = []
    for first in range(0, len(made), tables):
        # A table without capacity for its items has fewer.
        for keys in zip_longest(*(keys for _, keys in made[first : first + tables])):
            found += [(0, range(key, key + 1)) for key in keys if key is not None]
    return found
