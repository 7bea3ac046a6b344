"""The writers of one client."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.leases.checking import LeaseError
from headrace.leases.frames import Frame
from headrace.server.limits import Limits
from headrace.server.messages.failures import failure_of
from headrace.server.messages.writing import CloseWriter, OpenWriter, Refused
from headrace.server.serving.served import ServedObjects
from headrace.server.serving.writers.client_memory import ClientMemory
from headrace.server.serving.writers.writer import ServedWriter
from headrace.server.serving.writers.writer_sessions import sessions_of

_MOST = 1024


class ClientWriters:
    """Opens the writers of one client, and passes their messages on. Used in the thread of the selector.

    Args:
        served: the replays.
        send: sends messages to the client without waiting for it.
        limits: of the server.
        in_place: whether the client may share memory with the server.

    Attributes:
        queued_nbytes: of steps that wait for a page, and of items that wait for a rate limiter, about.
    """

    def __init__(
        self,
        served: ServedObjects,
        send: Callable[..., None],
        limits: Limits,
        *,
        in_place: bool,
    ) -> None:
        self._in_place = in_place
        self._limits = limits
        self._served = served
        self._send = send
        self._writers: dict[int, ServedWriter] = {}
        self.queued_nbytes = 0

    def take(self, frame: Frame) -> None:
        """Processes a message.

        Raises:
            LeaseError: it is of a writer that is not open, or not one of a client.
        """
        message = frame.message
        if isinstance(message, OpenWriter):
            self._open(message, frame.descriptors)
            return
        writer = self._writers.get(message.writer)
        if writer is None:
            raise LeaseError(f"writer: expected the number of an open writer, got {message.writer}")
        if not writer.is_closed:  # Otherwise the client has come back over another connection.
            before = writer.queued_nbytes
            writer.take(frame)
            self.queued_nbytes += writer.queued_nbytes - before
        if isinstance(message, CloseWriter):
            del self._writers[message.writer]

    def _open(self, opening: OpenWriter, descriptors: Sequence[int]) -> None:
        if opening.writer in self._writers or len(self._writers) >= _MOST:
            raise LeaseError(f"expected at most {_MOST} writers, each opened once, got {opening.writer}")
        memory = None
        if opening.shared_nbytes:
            if not self._in_place:
                raise LeaseError("shared_nbytes: expected shared memory over a Unix socket only")
            memory = ClientMemory(descriptors, opening.shared_nbytes)
        try:
            core = self._served.core(opening.replay)
            self._check_limits(opening, core.signature.nbytes, is_in_place=memory is not None)
            sync = self._served.sync(opening.replay)
            self._writers[opening.writer] = ServedWriter(
                core, opening, memory, self._send, sessions_of(core), sync
            )
        except Exception as error:
            self._send(Refused(writer=opening.writer, sequence=0, failure=failure_of(error)))

    def _check_limits(self, opening: OpenWriter, step_nbytes: int, *, is_in_place: bool) -> None:
        most_lanes, most_nbytes = self._limits.lanes, self._limits.payload_nbytes
        if opening.lanes > most_lanes:
            raise ValueError(
                f"lanes: expected at most {most_lanes}, which the limits of the server allow, got {opening.lanes}"
            )
        nbytes = opening.lanes * step_nbytes
        # Otherwise the first step would end the connection, and all that other threads do over it.
        if nbytes > most_nbytes and not is_in_place:
            raise ValueError(
                f"lanes: the steps of {opening.lanes} lanes have {nbytes} bytes, more than the {most_nbytes} of a "
                "message; give the server a larger payload_nbytes in its limits, or the writer fewer lanes"
            )

    @property
    def is_open(self) -> bool:
        """Whether a writer is open."""
        return bool(self._writers)

    @property
    def waits(self) -> bool:
        """Whether an operation waits for a page, or items for memory or disk space."""
        return bool(self._writers) and any(writer.waits for writer in self._writers.values())

    def look(self) -> None:
        """Tries again where operations or items wait; see `ServedWriter.look`."""
        for writer in self._writers.values():
            writer.look()
        self.queued_nbytes = sum(writer.queued_nbytes for writer in self._writers.values())

    def close(self) -> None:
        """Gives back the pages of all writers, whose client is gone; pending items stay."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
