"""Sending messages that are encoded once, each by one compiled call, over a channel that has nothing else to send."""

from __future__ import annotations

from typing import Any

import cython

from headrace.leases.channel import Channel
from headrace.leases.frames import encoded_head
from headrace.leases.messages import Message

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.headrace.kernels.sockets import send_pieces
else:
    from headrace.kernels.kinds import Bool, Int

# A number in a message that is encoded once: eight bytes 0xff behind the sign of a number of eight bytes. Nothing else
# in the message has them, since they are in no name.
_ANY_NUMBER = (1 << 64) - 1
_ANY_NUMBER_BYTES = b"\xcf" + b"\xff" * 8


class NumberedFrame:
    """The frame of a message of which one number changes from one sending to the next.

    Args:
        message: whose number is left open.
        name: of the number.
        payload_nbytes: bytes of the payload.

    Attributes:
        message: see above.
    """

    def __init__(self, message: Message, name: str, payload_nbytes: int = 0) -> None:
        self.message = message
        setattr(message, name, _ANY_NUMBER)
        self._frame = bytearray(encoded_head(message, payload_nbytes))
        self._nbytes = len(self._frame)
        self._number_at = self._frame.index(_ANY_NUMBER_BYTES) + 1
        if cython.compiled:
            self._bytes = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._frame))

    def set_number(self, number: Int) -> None:
        """Writes the number."""
        if cython.compiled:
            for place in range(8):
                self._bytes[self._number_at + place] = cython.cast(cython.uchar, number >> (56 - 8 * place))


class DirectSending:
    """Sends frames that need no encoding, while the channel has nothing else to send.

    Only where kernels are compiled: `begin`, and then `send` or `end`. Between them the caller runs no Python.

    Args:
        channel: of the link.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel, self._lock = channel, channel._sending
        self._descriptor = channel.fileno()
        # One with TLS does more than send bytes.
        self._is_possible = cython.compiled and type(channel) is Channel

    @property
    def is_possible(self) -> bool:
        """Whether `begin` may ever succeed."""
        return self._is_possible

    def begin(self) -> Bool:
        """Takes the channel; returns whether it is free, and has nothing else to send.

        The connection must not have ended: its descriptor may be another one's by now.
        """
        if cython.compiled:
            if not self._is_possible or not self._lock.take_now():
                return False
            if not (self._channel._unsent.nbytes or self._channel._is_held):
                return True
            self._lock.give()
        return False

    def end(self) -> None:
        """Gives the channel back instead of `send`."""
        self._lock.give()

    def send(self, frame: NumberedFrame, payload: Any, nbytes: Int, rows: Any, row: Int) -> None:
        """Sends a frame, and gives the channel back.

        The channel keeps the bytes that the system does not take at once. If the connection has ended, the next call
        that reads from it raises that.

        Args:
            frame: whose number is set.
            payload: the address of its payload.
            nbytes: of the payload.
            rows: uint8[n, nbytes], which do not change before they are sent; None: there is no payload.
            row: the payload.
        """
        if cython.compiled:
            with cython.nogil:
                taken: Int = send_pieces(self._descriptor, frame._bytes, frame._nbytes, payload, nbytes)
            try:
                if taken == frame._nbytes + nbytes:
                    self._channel.bytes_out += taken
                else:
                    taken = max(taken, 0)
                    pieces = [bytes(frame._frame)]
                    if rows is not None:
                        pieces.append(rows[row].data)
                    self._channel.bytes_out += taken
                    self._channel._unsent.keep(pieces, (), taken)
            finally:
                self._lock.give()
