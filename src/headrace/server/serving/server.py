"""A server: replays and queues of this process, reachable from other processes and machines."""

from __future__ import annotations

import os
import ssl
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from headrace.checks import check_path, check_timeout
from headrace.errors import CheckpointError, Closed, HeadraceError
from headrace.leases.selector import PeerSelector
from headrace.leases.tls.session import TlsSession
from headrace.replay.public import Replay
from headrace.server.addresses import Address, parse_address
from headrace.server.auth import token_bytes
from headrace.server.batch_queue import BatchQueue
from headrace.server.limits import Limits
from headrace.server.serving.checkpoints import Checkpoints
from headrace.server.serving.connections import Connections
from headrace.server.serving.served import ServedObjects
from headrace.server.statistics import ServerStatistics
from headrace.server.weights import Weights


class Server:
    """Serves replays and queues of this process to clients (`hr.Client`), over TCP and a Unix socket.

    The replays and queues stay usable in this process. Stopping the server does not close them.

    Args:
        served: replays, queues and weights by name.
        address: `tcp://host:port`; port 0 takes a free one. None serves only the Unix socket.
        unix: path of a Unix socket, which only this user's processes may use (mode 0600). Its clients read large
            batches in shared memory.
        token: a secret that clients must know, too; it is never sent. None asks for none.
        tls: an `ssl.SSLContext` for TCP, with the certificate of the server. Its `verify_mode=ssl.CERT_REQUIRED` asks
            clients for certificates, too. A Unix socket is not encrypted.
        checkpoint: directory for checkpoints. `stop`, `checkpoint` and `Client.checkpoint` save each replay to the
            folder of its name in there, by the rules of `Replay.save`. Queues are not saved, and nothing is loaded:
            `Replay.load` does that.
        keep: removes all but the newest checkpoints of each replay; None removes none.
        limits: of what clients may take; None: `hr.server.Limits()`.
        insecure: allows an address that other machines reach, without a token and without client certificates.

    Raises:
        ValueError: nothing to serve; no address; an address that other machines reach, without protection; `keep`
            without `checkpoint`.
        TypeError: something else than a `Replay` or a `BatchQueue`; `tls` is not an `ssl.SSLContext`.

    >>> import headrace as hr
    >>> replay = hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)])
    >>> with hr.Server({"experience": replay}) as server, hr.Client(server.address) as client:
    ...     client.replay("experience").table_names
    ('q',)
    >>> replay.close()
    """

    def __init__(
        self,
        served: Mapping[str, Replay | BatchQueue | Weights],
        *,
        address: str | None = "tcp://127.0.0.1:0",
        unix: str | os.PathLike[str] | None = None,
        token: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        keep: int | None = None,
        limits: Limits | None = None,
        insecure: bool = False,
    ) -> None:
        self._served = ServedObjects(served)
        self._token = token_bytes(token)
        self._tls = tls
        if tls is not None:
            TlsSession(tls)  # Refuses contexts that no client could use.
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits: expected hr.server.Limits, got {type(limits).__name__}")
        self._limits = limits or Limits()
        self._checkpoints = None
        if checkpoint is not None:
            directory = Path(check_path("checkpoint", checkpoint))
            self._checkpoints = Checkpoints(self._served.replays, directory, keep)
        elif keep is not None:
            raise ValueError(
                f"keep: expected a directory for checkpoints beside it (checkpoint=), got keep={keep!r}"
            )
        self._wanted = [] if address is None else [parse_address(address)]
        if unix is not None:
            self._wanted.append(Address(path=check_path("unix", unix)))
        if not self._wanted:
            raise ValueError("address: expected an address, a path for unix=, or both, got None for both")
        self._check_protection(tls, insecure)
        self._connections: Connections | None = None
        self._was_started = False
        self._lock = threading.Lock()

    def _check_protection(self, tls: ssl.SSLContext | None, insecure: bool) -> None:
        has_certificates = tls is not None and tls.verify_mode == ssl.CERT_REQUIRED
        for address in self._wanted:
            if address.is_local or self._token is not None or has_certificates:
                continue
            if not insecure:
                raise ValueError(
                    f"address: other machines reach {address}, and anyone there could read and write; pass token=, or "
                    "a tls= context with verify_mode=CERT_REQUIRED (insecure=True allows it)"
                )
            warnings.warn(f"{address} is open to everyone who reaches this machine", stacklevel=3)

    # ---- starting and stopping -------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Binds the addresses, and serves from here on in a thread of its own. Returns the server.

        Raises:
            OSError: an address cannot be bound.
            HeadraceError: it was started before.
        """
        with self._lock:
            if self._was_started:
                raise HeadraceError("start: expected a server that was not started before; make a new one")
            self._connections = Connections(
                self._served,
                self._wanted,
                self._token,
                self._tls,
                self._checkpoints,
                self._limits,
                PeerSelector(),
            )
            self._was_started = True
        return self

    @property
    def address(self) -> str:
        """The first address with its true port, for `hr.Client`.

        Raises:
            Closed: the server is not running.
        """
        return self.addresses[0]

    @property
    def addresses(self) -> list[str]:
        """All addresses.

        Raises:
            Closed: the server is not running.
        """
        return [str(address) for address in self._running().addresses]

    def _running(self) -> Connections:
        if self._connections is None:
            state = "is stopped" if self._was_started else "was not started; call start() first"
            raise Closed(f"the server {state}")
        return self._connections

    def stop(self, drain_timeout: float = 5.0) -> None:
        """Ends all connections: waiting calls of clients end with `Closed`. A second call does nothing.

        With a directory for checkpoints it saves the replays afterwards.

        Args:
            drain_timeout: seconds in which requests that have arrived are answered, and clients may read the answers.

        Raises:
            CheckpointError: a replay could not be saved; the connections have ended.
        """
        seconds = check_timeout(drain_timeout, "drain_timeout")
        with self._lock:
            running, self._connections = self._connections, None
        if running is not None:
            running.close(5.0 if seconds is None else seconds)
            if self._checkpoints is not None:
                self._checkpoints.save()

    def checkpoint(self) -> dict[str, Path]:
        """Saves each replay, while clients go on. Returns the new folders by name.

        Raises:
            CheckpointError: the server has no directory for checkpoints, or a replay could not be saved; the message
                names it, and the others are saved.
        """
        if self._checkpoints is None:
            raise CheckpointError("expected a server with a directory for checkpoints: pass checkpoint=")
        return self._checkpoints.save()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- looking ---------------------------------------------------------------------------------------------------

    @property
    def served(self) -> Mapping[str, Replay | BatchQueue]:
        """The replays and queues by name."""
        return {**self._served.replays, **self._served.queues}

    def statistics(self) -> ServerStatistics:
        """Returns one frozen record: connections, errors, bytes, and the record of each replay and queue.

        Raises:
            Closed: the server is not running.
        """
        return self._running().statistics()

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self._served.described))
        running = self._connections
        state = "stopped" if running is None else ", ".join(map(str, running.addresses))
        return f"<Server of {names}: {state}>"
