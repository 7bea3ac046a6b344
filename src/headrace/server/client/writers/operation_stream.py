"""The ordered stream of a writer's operations, from a client to the server.

Operations are numbered, sent without waiting, and kept until the server confirms them. The server reports for how many
further steps it holds pages: an operation within that number needs no answer. Any other one is sent alone and waits for
its answer, so an error is raised by the call that causes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.leases.frames import Payload
from headrace.replay.intake.later_made import LaterMade
from headrace.replay.intake.writer_like import Made
from headrace.server.client.connecting import NETWORK_SECONDS
from headrace.server.client.writers.lane_lengths import LaneLengths
from headrace.server.client.writers.operation_sender import KEYS_TICKET, OperationSender
from headrace.server.client.writers.operation_use import NO_USE, Use
from headrace.server.client.writers.step_memory import SharedSteps
from headrace.server.messages.operations import Operation, Report
from headrace.server.messages.writing import WaitPending, WantKeys

Change = Callable[[LaneLengths], LaneLengths]
"""Returns the lengths of lanes after an operation."""

# In flight at most; beyond it calls wait for the server.
_MOST_FLYING_NBYTES = 1 << 23
_MOST_FLYING = 512


class OperationStream(OperationSender):
    """Makes the operations of one writer, and waits for their answers where it must. One thread calls it."""

    # ---- operations ------------------------------------------------------------------------------------------------

    def append(self, step: Mapping[str, Any], version: int, use: Use) -> None:
        """Sends a step of every lane.

        Args:
            step: columns `[N, ...]`, or without that axis for one lane; copied.
            version: of the policy that acted.
            use: see `Use`.

        Raises:
            StoreFull: no page for it at the server; nothing is stored.
        """
        with self._changed:
            if version != self._version:
                self._send_buffer()
                self._version = version
            if not self._fits(use):
                self._drain()
                if not self._fits(use):
                    before = self._buffer.lengths
                    self._buffer.add(step, use)
                    self._refusable = self._log.sequence + 1, before, self._buffer.lengths
                    self._send_buffer(must=True)
                    return
            self._buffer.add(step, use)
            if self._buffer.is_full or not (self._log.flying or self._is_gathering):
                self._send_buffer()

    def put(
        self,
        make: Callable[..., Operation],
        payload: Payload = b"",
        use: Use = NO_USE,
        is_answered: bool = False,
        change: Change | None = None,
        **fields: Any,
    ) -> None:
        """Sends an operation behind the steps before it.

        Args:
            make: its class.
            payload: of it.
            use: see `Use`.
            is_answered: wait for its answer in any case.
            change: of the lengths of lanes; None: there is none.
            fields: of the operation, beside its number.

        Raises:
            Exception: it was waited for, and the server refused it; nothing changed.
        """
        self._check_size(payload)
        with self._changed:
            self._send_buffer()
            must = is_answered or not self._has_room_for(use)
            sequence = self._log.sequence + 1
            self._send(
                make(writer=self._opening.writer, sequence=sequence, must=must, **fields),
                payload,
                use,
                None if change is None else change(self._buffer.lengths),
            )

    def put_step(
        self,
        make: Callable[..., Operation],
        step: Mapping[str, Any],
        use: Use,
        payload: bytes = b"",
        change: Change = LaneLengths.after_step,
        **fields: Any,
    ) -> None:
        """Sends an operation that has a step of every lane; see `put`.

        Args:
            make, use, change, fields: see `put`.
            step: see `append`.
            payload: other values, behind the step.
        """
        with self._changed:
            self._send_buffer()
            must = not self._has_room_for(use)
            taken = self._buffer.packed_only(step, payload)
            self._check_size(taken)
            operation = make(
                writer=self._opening.writer,
                sequence=self._log.sequence + 1,
                must=must,
                place=taken.place if isinstance(taken, SharedSteps) else None,
                **fields,
            )
            self._send(operation, taken, use, change(self._buffer.lengths))

    def _has_room_for(self, use: Use) -> bool:
        """Whether an operation can be sent without waiting for an answer; waits for those in flight if it cannot."""
        if self._fits(use):
            return True
        self._drain()
        return self._fits(use)

    def _fits(self, use: Use) -> bool:
        """Whether an operation can be sent without waiting for an answer: the server has pages for it."""
        log, state, more = self._log, self.state, self._buffer.use
        if len(log.flying) >= _MOST_FLYING or log.nbytes >= _MOST_FLYING_NBYTES:
            return False
        if not (use.steps or use.finals):
            return True
        return (
            use.steps + log.steps + more.steps <= state.room
            and use.finals + log.finals + more.finals <= state.finals
        )

    # ---- waiting ---------------------------------------------------------------------------------------------------

    def drain(self, timeout: float | None = None) -> None:
        """Returns when all operations are applied, so that `state` and `made` are those after them.

        Args:
            timeout: of the call, in seconds, beside which the network has a second; None: that of the client.

        Raises:
            DeadlineExceeded: the server did not answer in time.
            Disconnected: the connection was not made again in time.
        """
        with self._changed:
            self._drain(timeout)

    def take_made(self) -> Sequence[Made]:
        """Returns the items of all operations so far that were not taken yet; a look at them may wait."""
        with self._changed:
            return self._made.take(
                self._log.sequence + self._buffer.count, self.state.sequence, self._wait_for_made
            )

    def _wait_for_made(self, made: LaterMade) -> None:
        with self._changed:
            self._send_buffer()
            self._wait(lambda: made.is_known)

    def report(self, timeout: float | None = None) -> None:
        """Gets the state of now.

        Args, Raises: see `drain`.
        """
        with self._changed:
            self._send_buffer()
            sequence = self._log.sequence + 1
            self._send(Report(writer=self._opening.writer, sequence=sequence), b"", NO_USE)
            self._wait(lambda: self.state.sequence >= sequence, self._network_seconds(timeout))

    def _drain(self, timeout: float | None = None) -> None:
        self._send_buffer()
        self._wait(lambda: not self._log.flying, self._network_seconds(timeout))

    def _network_seconds(self, timeout: float | None) -> float | None:
        """Returns the seconds in which the server must answer within a call of `timeout` seconds."""
        if timeout is None:
            return self._timeout
        seconds = max(timeout, 0.0) + NETWORK_SECONDS
        return seconds if self._timeout is None else min(seconds, self._timeout)

    def wait_until_applied(self, timeout: float | None) -> None:
        """Returns when no item is in flight or pending; any thread may call it.

        Raises:
            DeadlineExceeded, Disconnected: some are.
        """
        with self._changed:
            if self._end is None and not self.is_leaving and (self.is_busy or self.state.pending):
                self.ask(WaitPending, timeout, self._pending_message, lambda: self.unacknowledged, most=0)

    def _pending_message(self, seconds: float) -> str:
        return f"{self.unacknowledged} items of a writer are not applied after {seconds:.3g} s"

    def has_room(self, use: Use) -> bool:
        """Whether the server holds pages for these steps and final rows after those in flight."""
        return self._fits(use)

    def key(self) -> int:
        """Returns a key that the server gave this writer; waits for more only when all are used."""
        with self._changed:
            if not self._keys:
                self._request(KEYS_TICKET, WantKeys(writer=self._opening.writer))
                self._wait(lambda: bool(self._keys))
            key, self._keys = self._keys[0], self._keys[1:]
            return key

    def check(self) -> None:
        """Raises the error with which the stream has ended; or that of an operation that was not waited for, once."""
        if self._end is not None:
            raise self._lost()
        error, self.failure = self.failure, None
        if error is not None:
            raise error

    def settle(self, timeout: float | None) -> None:
        """Returns when everything that was put has been applied, or waits for a page, or the connection is lost.

        So another request of the client comes behind it. Any thread may call it.

        Args:
            timeout: in seconds; None waits without limit.

        Raises:
            DeadlineExceeded: the server did not answer.
        """
        with self._changed:
            if self._end is not None:
                return
            self._send_buffer()
            last = self._log.sequence
            if self._log.flying and self._is_open:
                self._wait(
                    lambda: self.state.sequence >= last or self.waits_for_page or not self._is_open, timeout
                )
