"""Base of the observers of frames: the order of calls and of frames.

An observer takes the frames of one environment, one a call. A run is the frames of one episode, or its recorded part.
The derived classes make items of runs, in one or more tables.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.checks import shown
from headrace.errors import SpecError
from headrace.tables.description.rules import Rule, check_priority
from headrace.trajectories.frames import StepType
from headrace.trajectories.lifecycle import MAX_PENDING, NEVER_WAITS, Recorder, alone
from headrace.trajectories.observers.frame_reader import FIRST, LAST, MID, Columns, FrameReader

if TYPE_CHECKING:
    from headrace.replay.interface import ReplayLike, WriterLike

_NO_RUN = -1
# By the next_step_type of a frame: the step_type of the next frame. The boundary ends the run.
AFTER = (_NO_RUN, MID, LAST)
# Padded rows are boundary frames (trajectories M2).
_PADDING = {"step_type": LAST, "next_step_type": FIRST}


class Observer(Recorder):
    """Records one environment's frames into tables; see the classes derived from it.

    Args:
        py_client: a `Replay`, or an object with its interface (`ReplayLike`).
        table_name: one name, or several: every item is made in each, of the same rows.
        priority: of every item.
        timeout: seconds that a call may wait for a full table.
    """

    _noun, _rows, _reopening = "observer", "frames", "; open() makes it usable again"

    def __init__(
        self, py_client: ReplayLike, table_name: str | Sequence[str], priority: float, timeout: float | None
    ) -> None:
        self._cached = 0
        super().__init__("py_client", py_client, timeout)
        self._tables = _checked_tables(py_client, table_name)
        self._priority = checked_priority(priority)
        self._frames = FrameReader(py_client.signature)
        self._expected = _NO_RUN

    # ---- differences between observers -----------------------------------------------------------------------------

    @abstractmethod
    def _item_rules(self) -> list[Rule]:
        """Returns a rule for each table."""

    @abstractmethod
    def _take(self, writer: WriterLike, columns: Columns, next_step_type: int) -> None:
        """Takes one frame into the current run, and ends the run if it is the boundary."""

    @abstractmethod
    def _end_run(self, writer: WriterLike) -> str:
        """Ends the current run here and makes its remaining items.

        Returns:
            The text of a warning about frames in no item; "" for none.
        """

    @abstractmethod
    def _drop_run(self, writer: WriterLike) -> None:
        """Ends the current run and makes no further item of it."""

    def _interrupt_run(self, writer: WriterLike) -> str:
        """Ends the current run, as `_end_run` does, because another episode begins."""
        return self._end_run(writer)

    # ---- calls -----------------------------------------------------------------------------------------------------

    def __call__(self, trajectory: Any) -> Sequence[int]:
        """Takes one frame: stores it once, and makes the items that it completes in every table.

        Args:
            trajectory: a `Trajectory`, a mapping from column names to values (what `Signature.flatten` gives), or a
                plain list or tuple of leaves in the order of `Signature.columns`; without a batch dimension.

        Returns:
            The keys of the items, table by table for each window; those of a call that raised DeadlineExceeded come
            with the next one. A list; over a client a sequence that is equal to it, and a look at it waits for the
            server.

        Raises:
            SpecError: the frame does not fit the signature, or is a batch; nothing changed.
            ValueError: it cannot follow the frame before it, or has step types of no frame; nothing changed.
            StoreFull: no room for the frame, and nothing changed; send it again when items have left. Or no room for
                its items: then it says that the frame was stored.
            DeadlineExceeded: the tables were full for `timeout` seconds; the frame was taken, do not send it again.
            Closed: the observer is closed.
        """
        # Does the work of `alone` and `_open_writer` without their cost, because it is called at every step.
        if self._in_use:
            raise self._busy()
        self._in_use = True
        try:
            writer = self._writer
            if writer is None:
                raise self._closed()
            columns = self._frames.read(trajectory)
            step_type, next_step_type = self._frames.step_types(columns)
            pending = writer.pending_from(MAX_PENDING)
            if step_type != self._expected and self._expected != _NO_RUN:
                self._restart(writer, columns, step_type)
            try:
                self._take(writer, columns, next_step_type)
            except SpecError as error:
                raise self._frames.explained(error, columns) from None
            self._expected = AFTER[next_step_type]
            return self._finish(writer, pending)
        finally:
            self._in_use = False

    def _restart(self, writer: WriterLike, columns: Columns, step_type: int) -> None:
        """Handles a frame that does not continue the run: the first of another, or a mistake."""
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
        if warning:
            warnings.warn(warning, stacklevel=3)

    @alone
    def reset(self, write_cached_steps: bool = True) -> Sequence[int]:
        """Ends the current run here; the next frame begins another.

        Args:
            write_cached_steps: True makes the items that are still to be made of the run, as if it ended here, and
                warns of frames that end in none. False drops what is in no item yet.

        Returns:
            The keys of the items that this made.

        Raises:
            DeadlineExceeded: the tables were full for `timeout` seconds; the run is over all the same.
            Closed: the observer is closed.
        """
        writer = self._open_writer()
        self._check_replay()
        pending, warning = writer.pending_from(MAX_PENDING), ""
        if write_cached_steps:
            warning = self._end_run(writer)
        else:
            self._drop_run(writer)
        self._expected = _NO_RUN
        return self._finish(writer, pending, warning, stacklevel=4)

    # ---- opening and closing ---------------------------------------------------------------------------------------

    @alone
    def open(self) -> None:
        """Makes a closed observer usable again, with an empty run; does nothing on an open one."""
        if self._writer is None:
            self._writer = self._new_writer()

    def _new_writer(self) -> WriterLike:
        writer = self._replay.row_writer(items=self._item_rules(), max_pending=NEVER_WAITS)
        for table in self._tables:
            writer.declare_padding(table, _PADDING)
        writer.record_items()
        return writer

    def _end_all(self) -> str:
        warning = self._end_run(self._open_writer())
        self._expected = _NO_RUN
        return warning

    def _forget_writer(self) -> None:
        super()._forget_writer()
        self._cached = 0
        self._expected = _NO_RUN

    def _num_cached(self) -> int:
        return self._cached

    def _unwritten(self) -> str:
        frames = self._num_unwritten()
        return (
            f"in the middle of an episode: {frames} of the {self._cached} frames of its run were"
            if frames
            else ""
        )

    def _num_unwritten(self) -> int:
        """Returns the number of frames of the current run that its end would write into further items, or drop."""
        return self._cached

    # ---- counting --------------------------------------------------------------------------------------------------

    def _run_ended(self, dropped: int) -> None:
        self._counters.episodes += 1
        self._counters.steps_dropped += dropped
        self._cached = 0

    def _describe(self, **settings: Any) -> str:
        tables = ", ".join(map(repr, self._tables))
        numbers = ", ".join(f"{name}={shown(value)}" for name, value in settings.items())
        state = "closed" if self._writer is None else f"open, {self._cached} frames cached"
        return f"<{type(self).__name__} for {tables}: {numbers}, {state}>"


def checked_priority(priority: float) -> float:
    """Returns a priority as a float.

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
