"""A channel that is encrypted from its first byte."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from headrace.errors import Disconnected
from headrace.leases.channel import Channel
from headrace.leases.frames import Frame, Payload
from headrace.leases.messages import Message
from headrace.leases.tls.session import TlsSession

_READ_NBYTES = 1 << 18
_AT_ONCE = (socket.MSG_DONTWAIT,)
# A peer that takes and sends nothing for so long is not there any more.
_SILENT_SECONDS = 30.0


class TlsChannel(Channel):
    """One end of a connection with TLS. It passes no descriptors.

    The handshake needs no calls of its own: the client's first message begins it, and receiving carries it on. Until it
    is finished, messages wait as unsent.

    Args:
        connection: a connected TCP socket, owned by the channel.
        messages: union of the messages that may arrive.
        session: of this side, not used before.
    """

    def __init__(self, connection: socket.socket, messages: Any, session: TlsSession) -> None:
        super().__init__(connection, messages)
        self._session = session
        # One thread receives while others send, and a session takes one call at a time.
        self._session_lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether messages can be sent: the handshake is finished."""
        return self._session.is_ready

    # ---- sending ---------------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> int:
        """Number of bytes that the system has not taken yet, those included that are encrypted already."""
        return super().unsent + self._session.unsent

    def send(self, *messages: Message, payload: Payload = b"", descriptors: tuple[int, ...] = ()) -> None:
        """See `Channel.send`. It does the handshake too, so no other thread may receive before.

        Raises:
            Disconnected: the peer is gone, or has taken nothing for 30 s; the connection has ended.
        """
        is_sent = self.send_soon(*messages, payload=payload, descriptors=descriptors)
        while not is_sent:
            is_ready = self.is_ready
            self._wait_for_peer(select.POLLOUT if is_ready else select.POLLIN)
            if not is_ready:
                self._read(0)
            is_sent = self.send_rest()

    def _wait_for_peer(self, event: int) -> None:
        poll = select.poll()
        poll.register(self.fileno(), event)
        if not poll.poll(_SILENT_SECONDS * 1000):
            self.shutdown()  # A part of a message is on its way: nothing can follow it.
            raise Disconnected(f"the peer has taken nothing for {_SILENT_SECONDS:g} s")

    def _send_unsent(self) -> bool:
        is_encrypted = super()._send_unsent()
        with self._session_lock:
            return self._send_ciphertext() and is_encrypted

    def _send_at_once(self, pieces: Sequence[Payload]) -> int:  # noqa: ARG002
        """See `Channel`: the session decides what is sent, and when."""
        return 0

    def _send_some(self, pieces: Sequence[Payload], descriptors: Sequence[int], flags: int) -> int:  # noqa: ARG002
        """See `Channel`; it never waits."""
        if descriptors:
            raise ValueError("expected no descriptors on a connection with TLS")
        session = self._session
        with self._session_lock:
            # Ciphertext for a peer that does not read must not pile up.
            if not self._send_ciphertext():
                raise BlockingIOError
            try:
                session.encrypt(pieces)
            finally:
                self._send_ciphertext()
        self.bytes_out += session.encrypted
        # No call from here on, after which Ctrl-C could come: a later call returns what this one has encrypted.
        taken, session.encrypted = session.encrypted, 0
        return taken

    def _send_ciphertext(self) -> bool:
        """Sends what the system takes at once; returns whether that is all."""
        session = self._session
        while ciphertext := session.next_ciphertext():
            try:
                # See `session.py`.
                (sent,) = map(self._socket.send, (ciphertext,), _AT_ONCE)
            except BlockingIOError:
                return False
            session.ciphertext = ciphertext[sent:]
        return True

    # ---- receiving -------------------------------------------------------------------------------------------------

    def _read(self, flags: int) -> bool:
        ciphertext = self._socket.recv(_READ_NBYTES, flags)
        if not ciphertext:
            raise Disconnected("the peer has ended")
        with self._session_lock:
            self._session.feed(ciphertext)
        self._decrypt_some()
        return True

    def next_frame(self) -> Frame | None:
        """See `Channel.next_frame`."""
        # Not all that was received may be decrypted yet.
        while (frame := super().next_frame()) is None:
            if not self._decrypt_some():
                return None
        return frame

    def _decrypt_some(self) -> bool:
        """Gives the reader what the next record holds; returns whether there was one."""
        destination = self._reader.destination
        with self._session_lock:
            try:
                if destination is None:
                    data = self._session.decrypt()
                    self._reader.feed(data, [])
                    nbytes = len(data)
                else:
                    nbytes = self._session.decrypt_into(destination)
                    self._reader.received(nbytes)
            except BlockingIOError:
                return False
            finally:
                # Of the handshake, or an alert.
                with suppress(OSError):
                    self._send_ciphertext()
        self.bytes_in += nbytes
        return True
