"""Items of a client's writer that wait at the server, for rate limiters or for memory."""

from __future__ import annotations

from headrace.clock import SYSTEM_CLOCK, Clock
from headrace.errors import DeadlineExceeded
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.messages.writing import WaitPending
from headrace.tables.pending import pending_message


class PendingItems:
    """Counts them and waits for them, by the reports of the server.

    Args:
        stream: of the writer.
        clock: of the deadlines.
    """

    def __init__(self, stream: OperationStream, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stream = stream
        self._clock = clock

    def count(self) -> int:
        """Returns their number now; asks the server where it may have changed."""
        stream = self._stream
        if stream.state.pending or stream.is_busy:
            stream.report()
        return stream.state.pending

    def count_from(self, least: int, timeout: float | None = None) -> int:
        """Returns their number if it is at least `least`, else any smaller one; asks the server only if it may be."""
        stream = self._stream
        if stream.state.pending + stream.items_flying >= least:
            stream.report(timeout)
        return stream.state.pending

    def may_exceed(self, most: int, timeout: float | None) -> bool:
        """Returns whether at least `most` are pending.

        Args:
            most: number of items.
            timeout: of the writer, in seconds; None: that of the client.

        Raises:
            DeadlineExceeded, Disconnected: the server did not tell in time.
        """
        # Rules: server AK3
        return self.count_from(most, timeout) >= most

    def wait_unless_fewer(self, most: int, timeout: float | None) -> None:
        """Does the same as `wait`; asks nothing where the operations in flight cannot make that many."""
        if self._stream.state.pending + self._stream.items_flying > most:
            self.wait(most, timeout)

    def wait(self, most: int, timeout: float | None) -> None:
        """Returns when at most `most` items are pending.

        Raises:
            DeadlineExceeded: more are; `.pending` is their number.
            Disconnected, Closed: the server is gone.
        """
        # Rules: server CL5
        stream = self._stream
        began = self._clock.monotonic()
        stream.drain(timeout)
        if not stream.is_connected and stream.state.pending <= most:
            return  # All is acknowledged: a server that is gone need not come back for this.
        timeout = None if timeout is None else max(timeout, 0.0)
        left = None if timeout is None else max(0.0, timeout - (self._clock.monotonic() - began))
        try:
            stream.ask(WaitPending, left, self._message, lambda: stream.state.pending, most=most)
        except DeadlineExceeded as error:
            stream.report()
            if stream.state.pending > most:
                message = self._message(timeout or 0.0)
                raise DeadlineExceeded(message, pending=stream.state.pending) from error

    def _message(self, seconds: float) -> str:
        state = self._stream.state
        return pending_message(state.tables, seconds, lacks_memory=state.lacks_memory)
