"""The writer of rows of a replay on a server."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count, check_seconds
from headrace.ends import EndOfEpisode
from headrace.errors import Closed, DeadlineExceeded, Disconnected
from headrace.leases.messages import packed
from headrace.replay.intake.final_columns import FinalColumns
from headrace.replay.intake.lane_count import checked_lanes
from headrace.replay.intake.selection import Selection
from headrace.replay.intake.single_rows import append_transition
from headrace.replay.intake.writer_like import UNKNOWN_STEPS, Made
from headrace.replay.padding import read_padding
from headrace.server.client.writers.given_for_call import GivenForCall
from headrace.server.client.writers.item_bounds import ItemBounds, is_stream
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.client.writers.operation_use import Use
from headrace.server.client.writers.pending_items import PendingItems
from headrace.server.client.writers.writer_connection import WriterConnection
from headrace.server.messages.columns import packed_arrays
from headrace.server.messages.operations import (
    AppendEnds,
    AppendSteps,
    CreateItem,
    CutLanes,
    DeclareFinals,
    DeclarePadding,
    DropLanes,
    EndLanes,
    EndStreams,
    MakeRoom,
)
from headrace.server.messages.rules import described_rule
from headrace.server.messages.writing import OpenWriter, Sync
from headrace.spec import Signature, check_array
from headrace.tables.description.rules import Rule, check_priority, checked_rules

Values = Mapping[str, NDArray[Any]]
_MOST_HISTORY = 1 << 62


class WrittenReplay(NamedTuple):
    """The replay of a writer.

    Attributes:
        name: at the server.
        signature: of a step.
        table_names: in their order.
    """

    name: str
    signature: Signature
    table_names: tuple[str, ...]


class RemoteRowWriter:
    """Sends steps to the writer of a replay on a server: see `WriterLike`. One thread uses it.

    Steps are checked here, sent without waiting, and made items of at the server. `pending`, and a look at what
    `take_made` returned, wait for the server where operations are in flight; other calls do not, unless the server is
    short of pages.

    Args:
        connection: to the server.
        replay: the replay that it writes to.
        lanes, items, history, max_pending, timeout: as `Replay.writer`.

    Raises:
        ValueError, TypeError, KeyError, StoreFull, Closed: as `Replay.writer`.
        Disconnected: the server is gone.
    """

    def __init__(
        self,
        connection: WriterConnection,
        replay: WrittenReplay,
        lanes: int,
        items: Sequence[Rule],
        history: int | None,
        max_pending: int,
        timeout: float | None,
    ) -> None:
        self._closed = True  # Until everything below has succeeded.
        lanes = checked_lanes(lanes, replay.signature)
        self._max_pending = check_count("max_pending", max_pending, 1)
        # A larger number means the same.
        history = None if history is None else min(check_count("history", history, 1), _MOST_HISTORY)
        self._rules = checked_rules(items)
        self._signature = replay.signature
        self._table_names = replay.table_names
        for rule in self._rules:
            self._check_table(rule.table)
        self._finals = FinalColumns(replay.signature)
        self._timeout = check_seconds(timeout)
        self.lanes = lanes
        self.policy_version = 0
        # Steps that calls have begun to send, and those that are sent.
        self._begun = self._sent = 0
        self._declared: frozenset[str] | None = None
        self._given = GivenForCall()
        self._is_recording = False
        self._bounds = ItemBounds(self._rules)
        self._stream = OperationStream(
            replay.signature,
            OpenWriter(
                writer=next(connection.numbers),
                replay=replay.name,
                lanes=lanes,
                rules=[described_rule(rule) for rule in self._rules],
                history=history,
                session=connection.session,
                signature=replay.signature.to_json(),
            ),
            connection.peer,
            connection.timeout,
            connection.shared_nbytes,
            connection.payload_nbytes,
        )
        if any(map(is_stream, self._rules)):
            self._stream.lengths = self._stream.lengths.counting_streams()
        self._items = PendingItems(self._stream)
        connection.open(self._stream)
        self._closed = False

    def end(self, error: Exception) -> None:
        """Ends the writer at once: every later call raises this error."""
        self._stream.give_up(error)

    # ---- declarations ----------------------------------------------------------------------------------------------

    def declare_final_columns(self, columns: Iterable[str]) -> None:
        """See `WriterLike.declare_final_columns`."""
        columns = frozenset(columns)
        if columns != self._declared:
            self._check_open()
            self._stream.put(DeclareFinals, is_answered=True, columns=sorted(columns))
            self._declared = columns

    def declare_padding(self, table: str, values: Mapping[str, Any]) -> None:
        """See `WriterLike.declare_padding`."""
        self._check_open()
        self._check_table(table)
        checked = read_padding(self._signature, values)
        payload = packed_arrays(checked.values())
        self._stream.put(DeclarePadding, payload, is_answered=True, table=table, columns=list(checked))

    # ---- steps -----------------------------------------------------------------------------------------------------

    def append(self, step: Any) -> None:
        """See `WriterLike.append`."""
        self._check_open()
        checked = self._checked(step)
        if self._items.may_exceed(self._max_pending, self._timeout):
            self._wait_to_append()
        self._append(checked)

    def wait_to_append(self) -> None:
        """See `WriterLike.wait_to_append`."""
        self._check_open()
        if self._items.may_exceed(self._max_pending, self._timeout):
            self._wait_to_append()

    def _checked(self, step: Any) -> Values:
        leading = (self.lanes,) if self.lanes > 1 else ()
        specs = self._signature.columns
        if type(step) is dict and step.keys() == specs.keys():
            return {name: check_array(step[name], spec, name, leading) for name, spec in specs.items()}
        return self._signature.validate(step, leading)

    @property
    def steps(self) -> int:
        """See `WriterLike.steps`."""
        return self._sent if self._begun == self._sent else UNKNOWN_STEPS

    def append_checked(self, step: Mapping[str, Any]) -> int:
        """See `WriterLike.append_checked`."""
        self._check_open()
        self._append(step)
        return self.steps

    def _append(self, step: Mapping[str, Any]) -> None:
        use = Use(steps=1, items=self._bounds.of_step(self._stream.lengths, self._given.selection))
        given = self._given.take()
        self._begun = self._sent + 1
        try:
            if given is None:
                self._stream.append(step, self.policy_version, use)
            else:
                self._stream.put_step(
                    AppendSteps, step, use, steps=1, version=self.policy_version, given=given
                )
        except Exception:  # The server refused it.
            self._begun = self._sent
            raise
        self._sent = self._begun

    def append_rows(self, rows: Values, final: NDArray[np.bool_]) -> int:
        """See `WriterLike.append_rows`."""
        return append_transition(self, rows, final, self._declared or ())

    @property
    def staged(self) -> Values:
        """See `WriterLike.staged`."""
        return {}

    @property
    def open_lanes(self) -> NDArray[np.bool_]:
        """See `WriterLike.open_lanes`."""
        return self._stream.lengths.open > 0

    def make_room(self, steps: int = 1, ended: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.make_room`."""
        self._check_open()
        if ended is None or not len(ended):
            use, lanes = Use(steps=steps), None
        else:
            use, lanes = self._use_of_ends(steps, len(ended), 0), packed(ended)
        if not self._stream.has_room(use):
            self._stream.put(MakeRoom, is_answered=True, steps=steps, ended=lanes)

    def append_ends(
        self, step: Values, idle: NDArray[np.bool_], ended: NDArray[np.int64], finals: Values
    ) -> None:
        """See `WriterLike.append_ends`."""
        self._check_open()
        if finals:
            self.declare_final_columns(finals)
        lengths, selection, bounds = self._stream.lengths, self._given.selection, self._bounds
        items = bounds.of_step(lengths, selection, idle) + bounds.of_ends(
            lengths, selection, ended, 1, steps=1
        )
        self._begun = self._sent + 1
        try:
            self._stream.put_step(
                AppendEnds,
                step,
                self._use_of_ends(1, len(ended), items),
                self._packed(finals),
                lambda now: now.after_step(idle).after_end(ended, 1),
                version=self.policy_version,
                idle=packed(idle, np.dtype(np.bool_)),
                ended=packed(ended),
                columns=list(finals),
                given=self._given.take(),
            )
        except Exception:  # The server refused it.
            self._begun = self._sent
            raise
        self._sent = self._begun

    def _packed(self, values: Values) -> bytes:
        """Returns the payload of columns, with the signature's dtypes."""
        specs = self._signature.columns
        return packed_arrays(np.asarray(value, specs[name].dtype) for name, value in values.items())

    def _use_of_ends(self, steps: int, ends: int, items: int) -> Use:
        """Returns what final rows take: those of all lanes are a step, others stand beside the lanes."""
        is_step = ends == self.lanes
        return Use(steps=steps + is_step, finals=0 if is_step else ends, items=items)

    def end_episode(self, final: Any = None, lane: int | None = None) -> None:
        """See `WriterLike.end_episode`."""
        self._check_open()
        lanes = np.arange(self.lanes) if lane is None else np.array([self._checked_lane(lane)])
        empty = lanes[self._stream.lengths.open[lanes] == 0].tolist()
        if empty:
            raise ValueError(
                f"end_episode: lanes {empty} have no step since their last episode ended; append one first"
            )
        self.end_lanes(lanes, None if final is None else self._checked_finals(final, len(lanes)))

    def _checked_finals(self, final: Any, count: int) -> Values:
        if count > 1:
            return self._finals.read(final, (count,))
        return {name: value[None] for name, value in self._finals.read(final, ()).items()}

    def _checked_lane(self, lane: int) -> int:
        lane = check_count("lane", lane, 0)
        if lane >= self.lanes:
            raise ValueError(f"lane: expected 0 to {self.lanes - 1}, got {lane}")
        return lane

    def end_lanes(self, lanes: NDArray[np.int64], values: Values | None) -> None:
        """See `WriterLike.end_lanes`."""
        self._check_open()
        if values is not None:
            self.declare_final_columns(values)
        final_rows = int(values is not None)
        items = self._bounds.of_ends(self._stream.lengths, self._given.selection, lanes, final_rows)
        self._stream.put(
            EndLanes,
            self._packed(values) if values else b"",
            self._use_of_ends(0, len(lanes), items) if final_rows else Use(items=items),
            change=lambda now: now.after_end(lanes, final_rows),
            lanes=packed(lanes),
            columns=None if values is None else list(values),
            given=self._given.take(),
        )

    def cut_open_lanes(self, end: EndOfEpisode | None = None) -> None:
        """See `WriterLike.cut_open_lanes`."""
        self._check_open()
        lengths = self._stream.lengths
        is_open = np.flatnonzero(lengths.open)
        self._stream.put(
            CutLanes,
            use=Use(items=self._bounds.of_ends(lengths, self._given.selection, is_open, 0, end=end)),
            change=lambda now: now.after_end(is_open, 0).after_restart(is_open),
            end=None if end is None else end.name,
            given=self._given.take(),
        )

    def drop_open_lanes(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.drop_open_lanes`."""
        self._check_open()
        which = np.arange(self.lanes) if lanes is None else lanes
        self._stream.put(
            DropLanes,
            change=lambda now: now.after_drop(which),
            lanes=None if lanes is None else packed(lanes),
        )
        # No later row goes on from a step of which it is not known whether it was sent.
        self._begun = self._sent

    def end_streams(self, lanes: NDArray[np.int64] | None = None) -> None:
        """See `WriterLike.end_streams`."""
        self._check_open()
        which = np.arange(self.lanes) if lanes is None else lanes
        self._stream.put(
            EndStreams,
            change=lambda now: now.after_restart(which),
            lanes=None if lanes is None else packed(lanes),
        )

    # ---- items -----------------------------------------------------------------------------------------------------

    def create_item(self, table: str, length: int, priority: float | None = None, lane: int = 0) -> int:
        """See `WriterLike.create_item`."""
        self._check_open()
        self._check_table(table)
        if priority is not None:
            check_priority(priority)
        length, lane = check_count("length", length, 1), self._checked_lane(lane)
        if length > min(self._stream.history, int(self._stream.lengths.last[lane])):
            raise ValueError(
                f"length: the last {length} rows of lane {lane} are not one window: a window lies in one episode "
                f"and among the newest {self._stream.history} rows of its writer (history)"
            )
        if self._items.may_exceed(self._max_pending, self._timeout):
            self._wait_for_room()
        key = self._stream.key()
        self._stream.put(
            CreateItem,
            use=Use(items=1),
            table=table,
            length=length,
            priority=None if priority is None else float(priority),
            lane=lane,
            key=key,
        )
        return key

    def _check_table(self, table: str) -> None:
        if table not in self._table_names:
            known = ", ".join(map(repr, self._table_names))
            raise KeyError(f"no table {table!r}; there are {known}")

    def give_priorities(
        self,
        priorities: Mapping[int, NDArray[np.float64]],
        lanes: Mapping[int, NDArray[np.int64]] | None = None,  # noqa: ARG002 - they follow from the rules
    ) -> None:
        """See `WriterLike.give_priorities`."""
        self._given.priorities = priorities

    def select_windows(self, selection: Selection) -> None:
        """See `WriterLike.select_windows`."""
        self._given.selection = selection

    def record_items(self) -> None:
        """See `WriterLike.record_items`."""
        self._stream.drain()
        self._is_recording = self._stream.is_recording = True

    def take_made(self) -> Sequence[Made]:
        """See `WriterLike.take_made`."""
        return self._stream.take_made() if self._is_recording else []

    def raise_refused(self) -> None:
        """See `WriterLike.raise_refused`."""
        self._stream.check()

    # ---- waiting and closing ---------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """See `WriterLike.pending`."""
        return self._stream.state.pending if self._closed else self._items.count()

    def pending_from(self, least: int) -> int:
        """See `WriterLike.pending_from`."""
        return self._stream.state.pending if self._closed else self._items.count_from(least)

    def _wait_to_append(self) -> None:
        if self._stream.state.completes or self._given.selects_rows:
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        self._items.wait(self._max_pending - 1, self._timeout)

    def wait_pending(self, most: int, timeout: float | None) -> None:
        """See `WriterLike.wait_pending`."""
        self._check_open()
        self._items.wait_unless_fewer(most, timeout)

    def flush(self, timeout: float | None = None, durable: bool = False) -> None:
        """See `WriterLike.flush`."""
        timeout = check_seconds(timeout)
        if self._closed and (durable or self._stream.unacknowledged):
            self._check_open()  # The server has no such writer any more, and would not answer.
        self._flush(timeout)
        if self._stream.replay_is_closed:
            raise Closed("the replay is closed")
        if durable:
            self._stream.ask(
                Sync,
                timeout,
                lambda seconds: f"the server's disk took longer than {seconds:.3g} s",
                lambda: 0,
            )

    def _flush(self, timeout: float | None) -> None:
        if not self._closed:
            # It asks the server also where nothing is pending: the replay may be closed.
            self._items.wait(0, timeout)
        self._stream.check()

    def close(self, timeout: float | None = None) -> None:
        """See `WriterLike.close`."""
        if self._closed:
            return
        try:
            self._flush(check_seconds(timeout))
        except Closed:
            self._release()
            if self._stream.unacknowledged or not self._stream.has_ended:
                raise
            return  # Every item was applied before the replay or the client was closed.
        self._release()

    def _release(self) -> None:
        self._closed = True
        try:
            self._stream.close()
        except KeyboardInterrupt:
            self._stream.close()  # No later call would do it.
            raise

    def abandon(self) -> None:
        """See `WriterLike.abandon`."""
        if self._closed:
            return
        pending = 0 if self._stream.has_ended else self._pending_at_once()
        self._release()
        self._warn_pending(pending, 4)

    def _pending_at_once(self) -> int:
        """Returns the number of pending items; an upper bound, if the server does not tell it at once."""
        if self._stream.is_connected:
            with suppress(Disconnected, DeadlineExceeded, Closed):
                return self._items.count_from(1, 0.0)
        return self._stream.unacknowledged

    def _warn_pending(self, pending: int, stacklevel: int) -> None:
        if pending:
            warnings.warn(
                f"a writer was left with {pending} items pending; they go in when their tables open",
                ResourceWarning,
                stacklevel=stacklevel,
            )

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the writer is closed")
        stream = self._stream
        if stream.has_ended or (stream.failure is not None and not self._is_recording):
            stream.check()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._release()
            if not self._stream.has_ended:
                self._warn_pending(self._stream.state.pending, 2)

    def __repr__(self) -> str:
        rules = ", ".join(map(repr, self._rules))
        state = "closed" if self._closed else "open"
        return f"<Writer of {self.lanes} lanes on a server, {state}, items: [{rules}]>"
