"""Sending samples one by one, each by one compiled call."""

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.kernels.shared_count import SharedCount
from headrace.server.client.direct_sending import DirectSending, NumberedFrame
from headrace.server.client.link import Link
from headrace.server.messages.requests import SendSamples

if cython.compiled:
    from cython.cimports.headrace.kernels.atomics import nanoseconds
    from cython.cimports.numpy import PyArray_DATA
else:
    from headrace.kernels.kinds import Bool, Int

# Over TCP the client has to read its socket for confirmations, which costs more than to send a sample. So samples that
# come this long after each other are sent while some are in flight: the server takes that long for one.
_LEAST_PAUSE_NANOSECONDS = 25_000
_MOST_OPEN = 8


class LoneSamples:
    """Sends samples of one stream over one connection, each in a message of its own.

    Only where kernels are compiled, and by threads that hold the interpreter lock: `begin`, and then `send` or `end`.

    Args:
        link: the connection.
        message: of a sample, whose number is left open.
        stored: number of the last sample that is in the queue.
        samples: uint8[places, nbytes], the ring, if samples travel in their messages; None: in shared memory.

    Attributes:
        least_pause: nanoseconds from one sample to the next, if the first is not known to be confirmed. In shared
            memory the server writes that at once, and such a sample is not sent alone.
    """

    def __init__(
        self, link: Link, message: SendSamples, stored: SharedCount, samples: NDArray[np.uint8] | None
    ) -> None:
        self._link, self._stored, self._samples = link, stored, samples
        self._direct: DirectSending = link.direct
        self._nbytes = 0 if samples is None else samples.shape[1]
        self._frame = NumberedFrame(message, "first", self._nbytes)
        self._most_open = 0 if samples is None else _MOST_OPEN
        self.least_pause = _LEAST_PAUSE_NANOSECONDS
        self._sent_at = 0
        if cython.compiled and samples is not None:
            self._first_sample = cython.cast(cython.p_uchar, PyArray_DATA(samples))

    def note_sent(self) -> None:
        """Notes that another message has been sent just now."""
        if cython.compiled:
            self._sent_at = nanoseconds()

    def begin(self, sent: Int) -> Bool:
        """Takes the channel for a sample that may be sent alone; returns whether it may.

        Args:
            sent: number of the last sample that was sent; none was written since.
        """
        if cython.compiled:
            if self._link.failure is not None:
                return False
            self._open = sent - self._stored.get()
            if self._most_open:
                now: Int = nanoseconds()
                if self._open > 0 and (
                    self._open >= self._most_open or now - self._sent_at < self.least_pause
                ):
                    return False
                self._sent_at = now
            elif self._open > 0:
                return False
            return self._direct.begin()
        else:
            return False

    def end(self) -> None:
        """Gives the channel back instead of `send`."""
        self._direct.end()

    def send(self, number: Int, row: Int) -> None:
        """Sends a sample, and gives the channel back.

        If the connection has ended, its next reader notices that, and the sample is sent over another one.

        Args:
            number: of the sample.
            row: of the ring in which it lies.
        """
        if cython.compiled:
            self._frame.set_number(number)
            sample = self._first_sample + row * self._nbytes
            self._direct.send(self._frame, sample, self._nbytes, self._samples, row)
            if self._open > self._most_open // 2:
                self._link.look()
