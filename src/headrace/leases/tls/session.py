"""One end of a TLS session over buffers in memory: it uses no socket, so none of its calls waits.

Bytes that are encrypted twice, or ciphertext that is lost or sent twice, end a connection. So what a call of C has done
is noted in the same step: `(done,) = map(call, (data,))` is no call for Python, after which Ctrl-C could come
(test_interrupts_of_tls.py).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from headrace.errors import AuthenticationError, Disconnected
from headrace.leases.frames import Payload, ProtocolError

# Ciphertext is made in portions of about this size, so a connection holds little more than one of them.
_PORTION_NBYTES = 1 << 18
_RECORD_NBYTES = 1 << 14
# Alerts with which a peer refuses a certificate, or the lack of one.
_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


class TlsSession:
    r"""Encrypts and decrypts one connection. The handshake is done by reading and writing.

    Args:
        context: of this side.
        host: the name that the server's certificate must have; None on the server's side.

    Raises:
        TypeError: not an `ssl.SSLContext`.
        ValueError: a context for the other side.

    Attributes:
        encrypted: number of bytes that `encrypt` has encrypted and the caller has not noted; it sets this to 0.
        ciphertext: bytes that are to be sent; the caller drops what is.

    >>> client = TlsSession(ssl.create_default_context(), "example.org")
    >>> client.encrypt([b"hello"])
    Traceback (most recent call last):
    BlockingIOError
    >>> bytes(client.next_ciphertext()[:1])  # A record of the handshake.
    b'\x16'
    """

    def __init__(self, context: ssl.SSLContext, host: str | None = None) -> None:
        if not isinstance(context, ssl.SSLContext):
            raise TypeError(f"tls: expected an ssl.SSLContext, got {type(context).__name__}")
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        try:
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, host is None, host)
        except (ssl.SSLError, ValueError) as error:
            side = "server" if host is None else "client"
            raise ValueError(f"tls: expected an ssl.SSLContext for a {side}: {error}") from error
        # The method of C: that of the class is a function of Python around it.
        self._write = getattr(self._ssl, "_sslobj", self._ssl).write
        self.encrypted = 0
        self.ciphertext = memoryview(b"")

    @property
    def is_ready(self) -> bool:
        """Whether the handshake is finished on this side."""
        return self._ssl.version() is not None

    def feed(self, ciphertext: bytes) -> None:
        """Adds received bytes."""
        self._incoming.write(ciphertext)

    @property
    def unsent(self) -> int:
        """Number of bytes that are encrypted and not sent."""
        return len(self.ciphertext) + self._outgoing.pending

    def next_ciphertext(self) -> memoryview:
        """Returns `ciphertext` after it was filled if it was empty."""
        if not self.ciphertext:
            read = map(self._outgoing.read, (-1,))
            (self.ciphertext,) = map(memoryview, read)  # type: ignore[arg-type]
        return self.ciphertext

    def encrypt(self, pieces: Sequence[Payload]) -> None:
        """Encrypts bytes for the peer, at most a portion, and adds their number to `encrypted`.

        Args:
            pieces: the first `encrypted` bytes of them are encrypted already, by a call that Ctrl-C interrupted.

        Raises:
            BlockingIOError: the handshake is not finished; the first call of a client begins it.
            AuthenticationError, Disconnected: see `decrypt`.
        """
        begin = 0
        with _errors():
            for piece in pieces:
                end = begin + len(piece)
                while self.encrypted < end:
                    if self.encrypted >= _PORTION_NBYTES:
                        return
                    done = self.encrypted - begin
                    record = (memoryview(piece)[done : done + _RECORD_NBYTES],)
                    (written,) = map(self._write, record)
                    self.encrypted += written
                begin = end

    def decrypt(self) -> bytes:
        """Returns bytes of the peer, at most a record.

        Raises:
            BlockingIOError: there are none before more is fed.
            AuthenticationError: a certificate is not accepted, on this side or by the peer.
            ProtocolError: the peer does not speak TLS, or no version of it that this side accepts.
            Disconnected: the peer has ended.
        """
        with _errors():
            return self._ssl.read(_RECORD_NBYTES)

    def decrypt_into(self, destination: memoryview) -> int:
        """As `decrypt`, into memory; returns the number of bytes."""
        with _errors():
            # With a buffer it returns a number.
            return cast(int, self._ssl.read(len(destination), destination))


@contextmanager
def _errors() -> Iterator[None]:
    """Raises the errors of `TlsSession.decrypt`."""
    try:
        yield
    except ssl.SSLWantReadError as error:
        raise BlockingIOError from error
    except ssl.SSLZeroReturnError as error:
        raise Disconnected("the peer has ended") from error
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationError(
            f"the certificate of the peer is not accepted: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if "ALERT" in reason and any(each in reason for each in _CERTIFICATE_ALERTS):
            raise AuthenticationError(
                f"the peer does not accept the certificate of this side: {reason}"
            ) from error
        raise ProtocolError(f"the TLS session failed: {reason}; expected TLS on both sides (tls=)") from error
