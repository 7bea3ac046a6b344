"""A client of a server."""

from __future__ import annotations

import ssl
import threading
import time
import warnings
from pathlib import Path
from typing import Any

from headrace.checks import check_count, check_kind, check_seconds, check_timeout
from headrace.closing import Closing
from headrace.errors import SpecError
from headrace.server.addresses import parse_address
from headrace.server.auth import token_bytes
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.queues.remote_queue import RemoteQueue
from headrace.server.client.remote_replay import RemoteReplay
from headrace.server.client.session import Session
from headrace.server.compression.choice import CompressionChoice, compressed_columns
from headrace.server.messages.handshake import Served
from headrace.server.messages.requests import GetServerStatistics, Ping, SaveReplays
from headrace.server.messages.samples import MAX_IN_FLIGHT
from headrace.server.records import statistics_of
from headrace.server.statistics import ServerStatistics
from headrace.spec import Signature, first_difference


class Client(Closing):
    """A connection to a `Server`. Thread-safe: a call that waits does not hold up those of other threads.

    Args:
        address: `tcp://host:port` or `unix:///path`; `Server.address` is one.
        token: the secret of the server; it is proven, and never sent.
        tls: an `ssl.SSLContext` for TCP, with the authorities that the client trusts, and with a certificate if the
            server asks for one. The certificate and the name of the server are checked as the context says.
        timeout: seconds for the handshake, and for calls that have no timeout of their own and do not wait for a rate
            limiter; None waits without limit.
        compression: "zstd" compresses the columns of steps, samples and batches that travel over TCP, in both
            directions; a dict from paths to "zstd" compresses only the columns at or below these paths. Columns that
            do not shrink travel as they are. It pays where the network is slower than about 1 GB/s and the columns
            shrink, such as images. Nothing is compressed over a Unix socket, or by a server without zstd.

    Raises:
        Disconnected: nobody listens there, or the peer does not speak the protocol.
        AuthenticationError: the server refuses the token, or does not ask for it, or cannot prove that it knows it; or
            one side does not accept the certificate of the other.
        DeadlineExceeded: the handshake took longer than `timeout`.
        ValueError: not an address; a path in `compression` that is not of a column of the server.
        ImportError: `compression` without the extra `headrace[zstd]`, which Python 3.14 does not need.

    >>> import headrace as hr
    >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
    ...     with replay.writer(items=[hr.ItemRule("q", 1)]) as writer:
    ...         writer.append({"x": 7})
    ...     with hr.Server({"r": replay}) as server, hr.Client(server.address) as client:
    ...         client.replay("r").sample("q", 1)["x"]
    array([7])
    """

    def __init__(
        self,
        address: str,
        *,
        token: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float | None = 30.0,
        compression: CompressionChoice = None,
    ) -> None:
        self._session = Session(
            ServerAccess(
                parse_address(address),
                token_bytes(token),
                tls,
                check_timeout(timeout),
                compressed_columns(compression),
            )
        )
        self._lock = threading.Lock()
        self._queues: dict[str, RemoteQueue] = {}

    # ---- calls -----------------------------------------------------------------------------------------------------

    def replay(self, name: str, *, signature: Signature | None = None) -> RemoteReplay:
        """Returns a replay of the server.

        Args:
            name: of the replay.
            signature: that the caller expects.

        Raises:
            KeyError: no such replay; the message has the known names.
            TypeError: a queue has this name; `signature` is not a signature.
            SpecError: the replay has another signature; the message has the first difference.
        """
        if signature is not None:
            check_kind("signature", signature, Signature)
        served = self._served(name, "replay")
        found = RemoteReplay(self._session, name, served)
        if signature is not None and (difference := first_difference(signature, found.signature)):
            raise SpecError(f"replay {name!r} on {self._session.peer}: {difference}")
        return found

    def queue(self, name: str, *, example: Any = None, max_in_flight: int | None = None) -> RemoteQueue:
        """Returns a queue of the server; each call returns the same object.

        Args:
            name: of the queue.
            example: a sample as the caller expects it; its values are not used. None accepts all.
            max_in_flight: samples of this client that are sent and not acknowledged, at most; then `send` waits. If so
                many take more than 4 MiB, the bound is the number that fit, or 2. None: that of an earlier call, or 64.
                With 1000, tiny samples travel in fewer messages. A client that is killed loses at most the samples in
                flight.

        Raises:
            ValueError: an earlier call gave another `max_in_flight`.
            KeyError: no such queue; the message has the known names.
            TypeError: a replay has this name.
            SpecError: the queue takes other samples; the message has the first difference.
        """
        if max_in_flight is not None:
            max_in_flight = check_count("max_in_flight", max_in_flight, 1)
        signature = Signature.from_json(self._served(name, "queue").signature)
        if example is not None and (difference := first_difference(Signature.like(example), signature)):
            raise SpecError(f"queue {name!r} on {self._session.peer}: {difference}")
        with self._lock:
            found = self._queues.get(name)
            if found is None:
                found = RemoteQueue(self._session, name, signature, max_in_flight or MAX_IN_FLIGHT)
                self._queues[name] = found
        if max_in_flight not in (None, found.max_in_flight):
            raise ValueError(
                f"queue {name!r} on {self._session.peer}: an earlier call opened it with max_in_flight="
                f"{found.max_in_flight}, got {max_in_flight}; give the number to the first call"
            )
        return found

    def _served(self, name: str, kind: str) -> Served:
        known = self._session.link().served
        if name not in known:
            raise KeyError(
                f"{self._session.peer} serves no {name!r}; there are {', '.join(map(repr, known))}"
            )
        found = known[name]
        if found.kind != kind:
            remedy = "Weights.receiver" if found.kind == "weights" else f"client.{found.kind}"
            raise TypeError(
                f"{name!r} on {self._session.peer}: expected a {kind}, got {found.kind}; use {remedy}"
            )
        return found

    def ping(self) -> float:
        """Returns the seconds that a message to the server and back takes."""
        began = time.perf_counter()
        self._session.repeated(Ping())
        return time.perf_counter() - began

    def statistics(self, *, timeout: float | None = None) -> ServerStatistics:
        """Returns one frozen record of the server: connections, errors, bytes, and its replays and queues.

        Args:
            timeout: in seconds, for the call with its retries, beside which the network has a second; None: that of the
                client.
        """
        answer, _ = self._session.exchanged(GetServerStatistics(), timeout=check_seconds(timeout))
        return statistics_of(answer)

    def checkpoint(self) -> dict[str, Path]:
        """Saves each replay of the server to the server's directory for checkpoints, however long that takes.

        Returns:
            The new folders by name, on the server's machine.

        Raises:
            CheckpointError: the server has no such directory, or a replay could not be saved.
            Disconnected: the server is gone; the replays may be saved or not.
        """
        folders = self._session.lasting(SaveReplays()).folders
        return {name: Path(folder) for name, folder in folders.items()}

    def close(self) -> None:
        """Ends the connection, and every wait with `Closed`. A second call does nothing.

        It waits until the items of open writers are applied and the samples on their way to queues are stored, at most
        `timeout` seconds. After an exception a `with` block does not wait, and a `ResourceWarning` counts them.

        Raises:
            DeadlineExceeded, Disconnected: some are not; `.pending` is their number. The client is closed.
            Closed: a queue was closed before it had all samples.
        """
        self._session.close()

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.close()
            return
        try:
            items, samples = self._session.unconfirmed
        finally:  # Also after another Ctrl-C.
            self._session.abandon()
        if items or samples:
            # Rules: replay I6
            warnings.warn(
                f"a client was left by an exception with up to {items} items and {samples} samples that are not known "
                "to be stored; those on their way are lost",
                ResourceWarning,
                stacklevel=2,
            )

    def __repr__(self) -> str:
        return f"<Client of {self._session.peer}>"
