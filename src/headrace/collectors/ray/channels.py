"""The ends of the connection between a collector and an actor. No memory is shared, so rows and weights travel.

The worker at the actor's end is that of a process: it writes rows in place, and reads weights in place. So the actor's
end gives it memory of its own, sends the rows behind their commits, and puts arriving weights into that memory. Rows of
a large commit are fetched through the object store instead; the messages behind it wait for them.
"""

# Rules: collectors CY1, CY2

from __future__ import annotations

import os
import select
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.last_step import LastStep
from headrace.collectors.messages import (
    AnyMessage,
    Failed,
    Proceed,
    Ready,
    RowsAt,
    RowsHeld,
    Start,
    Stepped,
    WeightsAt,
    WeightsSent,
)
from headrace.collectors.ray.arriving_weights import ArrivingWeights
from headrace.collectors.ray.large_commits import LARGE_NBYTES, HeldRows
from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.forwarding import steps_of
from headrace.leases.frames import LARGEST_PAYLOAD, Frame, Payload
from headrace.leases.messages import Commit, Goodbye, Lease, Message, Return, unpacked
from headrace.leases.page_views import Columns
from headrace.leases.payload import packed_columns
from headrace.store.memory.arena import Arena


class CollectorEnd(Channel):
    """The collector's end: descriptors mean nothing on another machine, and stay here.

    Args:
        connection: see `Channel`.
        fetch: begins to fetch rows from the actor, by their number.

    Attributes:
        has_ended: set when nothing more comes.
    """

    def __init__(self, connection: socket.socket, fetch: Callable[[int], Future[NDArray[np.uint8]]]) -> None:
        super().__init__(connection, AnyMessage)
        self._fetch = fetch
        # Of the next commit.
        self._rows: Future[NDArray[np.uint8]] | None = None
        self.has_ended = threading.Event()

    # ---- receiving -------------------------------------------------------------------------------------------------

    @property
    def awaits_rows(self) -> bool:
        """Whether rows are on their way, for which the next message waits."""
        return self._rows is not None and not self._rows.done()

    def read_ready(self) -> bool:
        """See `Channel.read_ready`."""
        try:
            return super().read_ready()
        except Disconnected:
            self.has_ended.set()
            raise

    def next_frame(self) -> Frame | None:
        """See `Channel.next_frame`. The caller takes the next frame when no rows are awaited.

        Raises:
            Disconnected: also if rows did not arrive.
        """
        frame = super().next_frame()
        if frame is None:
            return None
        match frame.message:
            case RowsHeld(number=number):
                self._rows = self._fetch(number)
            case Commit() if self._rows is not None:
                rows, self._rows = self._rows, None
                return frame._replace(payload=_fetched(rows))
        return frame

    @property
    def has_hung_up(self) -> bool:
        """See `Channel.has_hung_up`. While rows are on their way from an actor that has ended, Ray tells their fate."""
        if not self.awaits_rows:
            return super().has_hung_up
        # An error: its machine is gone, which Ray notices later.
        poll = select.poll()
        poll.register(self.fileno(), 0)
        return any(events & select.POLLERR for _, events in poll.poll(0))

    def close(self) -> None:
        """See `Channel.close`."""
        super().close()
        self.has_ended.set()

    # ---- sending ---------------------------------------------------------------------------------------------------

    def send_soon(
        self,
        *messages: Message,
        payload: Payload = b"",
        parts: Sequence[memoryview] = (),
        descriptors: tuple[int, ...] = (),  # noqa: ARG002
        most: int = LARGEST_PAYLOAD,
    ) -> bool:
        """See `Channel.send_soon`."""
        return super().send_soon(*messages, payload=payload, parts=parts, most=most)


def _fetched(rows: Future[NDArray[np.uint8]]) -> memoryview:
    """Returns rows that have arrived, in place.

    Raises:
        Disconnected: they have not.
    """
    try:
        return rows.result(timeout=0).data
    except Exception as error:
        raise Disconnected(f"rows of the actor did not arrive: {error}") from error


class ActorEnd(Channel):
    """The actor's end, as the worker uses it.

    Args:
        connection: see `Channel`.
        weights: those that arrive beside the connection.
        held: keeps rows that the collector fetches.
    """

    def __init__(self, connection: socket.socket, weights: ArrivingWeights, held: HeldRows) -> None:
        super().__init__(connection, AnyMessage)
        self._weights = weights
        self._held_rows = held
        self._sent_weights = 0
        self._observed: frozenset[str] = frozenset()
        self._lanes = 0
        self._rows: _LocalRows | None = None
        self._last_step: LastStep | None = None
        self._reported_step = 0.0

    # ---- receiving -------------------------------------------------------------------------------------------------

    def receive(self) -> Frame:
        """See `Channel.receive`."""
        return self._with_memory(super().receive())

    def receive_ready(self) -> Iterator[Frame]:
        """See `Channel.receive_ready`."""
        for frame in super().receive_ready():
            yield self._with_memory(frame)

    def _with_memory(self, frame: Frame) -> Frame:
        """Returns a frame with the descriptors that a process would have been sent."""
        match frame.message:
            case Start():
                self._last_step = LastStep.new()
                frame.descriptors.append(os.dup(self._last_step.descriptor))
                self._last_step.close()
            case RowsAt() as rows:
                if self._rows is not None:
                    self._rows.close()
                self._rows = _LocalRows(rows, self._observed, self._lanes)
                frame.descriptors.append(os.dup(self._rows.descriptor))
            case WeightsAt() as weights:
                message, descriptor = self._weights.open(weights)
                frame.descriptors.append(descriptor)
                return frame._replace(message=message)
            case WeightsSent(sequence=sequence):
                self._sent_weights = sequence
            case Proceed() if self._sent_weights:
                # The rollout begins with the weights that were published before it was asked for.
                self._weights.wait_for(self._sent_weights)
            case Lease(page=page, purpose="rows") if self._rows is not None:
                self._rows.pages.append(page)
        return frame

    # ---- sending ---------------------------------------------------------------------------------------------------

    def report_step(self) -> None:
        """Tells the collector if a step was taken since the last call, or if the next one waits for weights."""
        # Rules: collectors CX5
        if self._last_step is None:
            return
        if self._last_step.at != self._reported_step or self._weights.are_awaited:
            self._send_steps(self._last_step)

    def _send_steps(self, last_step: LastStep) -> None:
        self._reported_step = last_step.at
        super().send(Stepped(taken=last_step.taken))

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """Sends frames as `Channel.send` does, each commit with its rows."""
        *others, last = messages
        for message in others:
            self._send(message, b"", ())
        self._send(last, payload, descriptors)

    def _send(self, message: Message, payload: Payload, descriptors: tuple[int, ...]) -> None:
        match message:
            case Ready() as ready:
                self._observed, self._lanes = frozenset(ready.observed), ready.num_envs
            case Commit() as commit if self._rows is not None:
                payload = self._rows.payload(commit)
                if len(payload) >= LARGE_NBYTES:
                    number = self._held_rows.put(np.frombuffer(payload, np.uint8))
                    super().send(RowsHeld(number=number), commit)
                    return
            case Return() if self._rows is not None:
                self._rows.leave_page()
            case Failed() | Goodbye() if self._last_step is not None:
                self._send_steps(self._last_step)
        super().send(message, payload=payload, descriptors=descriptors)


class _LocalRows:
    """Memory of the actor in which the worker writes rows, as large as the collector's store.

    Args:
        rows: the place of the collector's rows.
        observed: names of the columns that an observation has.
        lanes: of the worker.

    Attributes:
        pages: leased for rows and not left, the one being filled first.
    """

    def __init__(self, rows: RowsAt, observed: frozenset[str], lanes: int) -> None:
        self._arena = Arena.shared(rows.nbytes)
        place = rows.place
        self._signature = place.signature
        self._columns = place.columns(os.dup(self._arena.descriptor))
        self._observed = [name for name in self._columns if name in observed]
        self._lanes = lanes
        self._page_rows = place.page_rows
        self.pages: deque[int] = deque()
        # Vector steps of the first page that were committed.
        self._steps = 0

    @property
    def descriptor(self) -> int:
        """Of the memory."""
        return self._arena.descriptor

    def close(self) -> None:
        """Closes the descriptor; the memory goes with the last array over it."""
        self._arena.close()

    def leave_page(self) -> None:
        """Goes on in the next page."""
        self.pages.popleft()
        self._steps = 0

    def payload(self, commit: Commit) -> memoryview:
        """Returns the rows of a commit, and notes in it whether the observations after its last step are among them."""
        begin = commit.page * self._page_rows
        steps = steps_of(commit, self._columns, begin + self._steps * self._lanes, self._lanes)
        self._steps += commit.steps
        following: Columns | None = None
        if commit.steps:
            first = begin + self._steps * self._lanes
            if self._steps == self._page_rows // self._lanes:
                self.leave_page()
                first = self.pages[0] * self._page_rows
            following = {name: self._columns[name][first : first + self._lanes] for name in self._observed}
        commit.shows_next = following is not None
        final_rows = unpacked(commit.final_rows, "final_rows")
        finals = {name: column[final_rows] for name, column in self._columns.items()}
        return packed_columns(self._signature, steps.columns, finals, following)
