"""Sending samples one by one, each by one compiled call."""

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.kernels.shared_count import SharedCount
from headrace.leases.channel import Channel
from headrace.leases.frames import encoded_head
from headrace.server.client.link import Link
from headrace.server.messages.requests import SendSamples

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.headrace.kernels.sending import send_pieces
    from cython.cimports.numpy import PyArray_DATA
else:
    from headrace.kernels.kinds import Bool, Int

# The number of a sample in a message that is encoded once: eight bytes 0xff behind the sign of a number of eight bytes.
# Nothing else in the message has them, since they are in no name.
_ANY_NUMBER = (1 << 64) - 1
_ANY_NUMBER_BYTES = b"\xcf" + b"\xff" * 8


def most_open(*, is_shared: bool) -> int:
    """Returns the number of samples that may be in flight where one more is sent at once.

    Args:
        is_shared: whether the server writes the number of stored samples into memory. Otherwise the client has to read
            its socket for it, and does so when the next sample is on its way.
    """
    return 0 if is_shared else 1


class LoneSamples:
    """Sends samples of one stream over one connection, each in a message of its own.

    Only where kernels are compiled, and by threads that hold the interpreter lock: `begin`, and then `send` or `end`.

    Args:
        link: the connection.
        channel: of the link.
        message: of a sample, whose number is left open.
        stored: number of the last sample that is in the queue.
        samples: uint8[places, nbytes], the ring, if samples travel in their messages; None: in shared memory.
    """

    def __init__(
        self,
        link: Link,
        channel: Channel,
        message: SendSamples,
        stored: SharedCount,
        samples: NDArray[np.uint8] | None,
    ) -> None:
        self._link, self._channel, self._stored = link, channel, stored
        self._lock = channel._sending
        self._samples = samples
        self._nbytes = 0 if samples is None else samples.shape[1]
        message.first = _ANY_NUMBER
        self._frame = bytearray(encoded_head(message, self._nbytes))
        self._frame_nbytes = len(self._frame)
        self._number_at = self._frame.index(_ANY_NUMBER_BYTES) + 1
        self._descriptor = channel.fileno()
        # Over TCP the confirmation of the last one is read after the next one is sent.
        self._most_open = most_open(is_shared=samples is None)
        if cython.compiled and samples is not None:
            self._first_sample = cython.cast(cython.p_uchar, PyArray_DATA(samples))

    @classmethod
    def over(
        cls, link: Link, message: SendSamples, stored: SharedCount, samples: NDArray[np.uint8] | None
    ) -> LoneSamples | None:
        """Returns a new one; None where kernels are not compiled, and for channels that do more than send bytes."""
        channel = link._channel
        return (
            cls(link, channel, message, stored, samples)
            if cython.compiled and type(channel) is Channel
            else None
        )

    def begin(self, sent: Int) -> Bool:
        """Takes the channel for a sample that may be sent alone; returns whether it may.

        Args:
            sent: number of the last sample that was sent; none was written since.
        """
        if cython.compiled:
            if self._stored.get() + self._most_open < sent:
                return False
            if self._link.failure is not None or not self._lock.acquire(False):
                return False
            if not (self._channel._waiting or self._channel._is_held):
                return True
            self._lock.release()
        return False

    def end(self) -> None:
        """Gives the channel back instead of `send`."""
        self._lock.release()

    def send(self, number: Int, row: Int) -> None:
        """Sends a sample, and gives the channel back.

        Whatever the system does not take at once is kept by the channel. If the connection has ended, its next reader
        notices that, and the sample is sent over another one.

        Args:
            number: of the sample.
            row: of the ring in which it lies.
        """
        if cython.compiled:
            frame = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._frame))
            for place in range(8):
                frame[self._number_at + place] = cython.cast(cython.uchar, number >> (56 - 8 * place))
            sample = self._first_sample + row * self._nbytes
            with cython.nogil:
                taken: Int = send_pieces(self._descriptor, frame, self._frame_nbytes, sample, self._nbytes)
            try:
                if taken == self._frame_nbytes + self._nbytes:
                    self._channel.bytes_out += taken
                else:
                    self._keep(row, max(taken, 0))
            finally:
                self._lock.release()
            if self._most_open:
                self._link.look()

    def _keep(self, row: Int, taken: Int) -> None:
        pieces = [bytes(self._frame)]
        if self._samples is not None:
            pieces.append(self._samples[row].data)
        self._channel.bytes_out += taken
        self._channel._keep(pieces, (), taken)
