"""The session of a client: its connection, which is made again after it has ended."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from typing import Any

import cython

from headrace import forking
from headrace.errors import Closed, Disconnected
from headrace.leases.frames import Payload
from headrace.server.client.connecting import NETWORK_SECONDS, ServerAccess, connect, connect_writers
from headrace.server.client.link import Link
from headrace.server.client.queues.sample_stream import SampleStream
from headrace.server.client.writers.operation_stream import OperationStream
from headrace.server.client.writers.writer_connection import WriterConnection
from headrace.server.compression.choice import CompressedColumns
from headrace.server.messages.requests import Request
from headrace.spec import Signature
from headrace.system import has_sealed_memory

_LOGGER = logging.getLogger(__name__)
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 1.0


class Session:
    """The connection of a client; see `Connected`.

    Args:
        access: to the server; its timeout is that of calls, too.

    Attributes:
        access: see above.
        peer: the address, for messages.
        timeout: see above.
        can_share: whether the server can map memory of this process.
    """

    def __init__(self, access: ServerAccess) -> None:
        self.access = access
        self.timeout = access.timeout
        self.peer = str(access.address)
        self.can_share = access.address.is_unix and has_sealed_memory()
        self._samples: list[SampleStream] = []
        self._pid = os.getpid()
        self._forks = forking.forks
        self._is_closed = False
        self._connecting = threading.Lock()
        self._link = connect(access)
        if access.columns is not None:
            self._check_compression(access.columns)
        self._writers: WriterConnection | None = None

    def _check_compression(self, columns: CompressedColumns) -> None:
        """Checks the columns to be compressed, and warns if the server does not compress.

        Raises:
            ValueError: the server has no such column.
        """
        try:
            signatures = [each.signature for each in self._link.served.values() if each.signature is not None]
            known = [name for each in signatures for name in Signature.from_json(each).columns]
            columns.check_known(dict.fromkeys(known), self.peer)
        except BaseException:
            self._link.close()
            raise
        if self.access.offer is not None and self._link.packer is None:
            _LOGGER.warning(
                "%s does not compress, so the columns travel as they are; install headrace[zstd] there",
                self.peer,
            )

    @cython.annotation_typing(False)
    def link(self, timeout: float | None = None) -> Link:
        """Returns the connection, and makes a new one if the last has ended; see `Connected.link`."""
        link = self._link
        if link.is_open() and self._forks == forking.forks and not self._is_closed:
            return link
        with self._connecting:
            self._check_open()
            if self._link.failure is not None:
                self._link.close()
                self._link = connect(replace(self.access, timeout=self._network_timeout(timeout)))
            return self._link

    def _network_timeout(self, timeout: float | None) -> float | None:
        """Returns the seconds in which the server must answer within a call of `timeout` seconds."""
        bounds = [] if timeout is None else [max(timeout, 0.0) + NETWORK_SECONDS]
        return min(bounds if self.timeout is None else [*bounds, self.timeout], default=None)

    def writers(self) -> WriterConnection:
        """Returns the connection of the writers; see `Connected.writers`."""
        self._check_open()
        with self._connecting:
            self._check_open()
            if self._writers is None or self._writers.has_ended:
                self._writers = WriterConnection(
                    lambda: connect_writers(self.access),
                    self.peer,
                    self.timeout,
                )
            return self._writers

    def settle(self, replay: str, timeout: float | None = None) -> None:
        """See `Connected.settle`."""
        self._check_open()
        for stream in self._streams():
            if stream.replay == replay:
                stream.settle(self._network_timeout(timeout))

    def _streams(self) -> list[OperationStream]:
        return [] if self._writers is None else self._writers.streams()

    def _check_open(self) -> None:
        if self._forks != forking.forks:
            raise Closed(
                f"this client belongs to process {self._pid}; process {os.getpid()} was forked from it, and both would "
                "read from one connection. Make a client in the process that uses it"
            )
        if self._is_closed:
            raise Closed("the client is closed")

    def once(self, request: Request, payload: Payload = b"", owner: object = None) -> Any:
        """See `Connected.once`."""
        return self._once(request, payload, owner, None)[0]

    def _once(
        self, request: Request, payload: Payload, owner: object, timeout: float | None
    ) -> tuple[Any, Payload]:
        link = self.link(timeout)
        return link.wait(link.begin(request, payload, owner), self._network_timeout(timeout))

    def lasting(self, request: Request, owner: object = None) -> Any:
        """See `Connected.lasting`."""
        link = self.link()
        return link.wait(link.begin(request, owner=owner), None)[0]

    def repeated(self, request: Request, payload: Payload = b"", owner: object = None) -> Any:
        """See `Connected.repeated`."""
        return self.exchanged(request, payload, owner)[0]

    @cython.annotation_typing(False)
    def exchanged(
        self,
        request: Request,
        payload: Payload = b"",
        owner: object = None,
        timeout: float | None = None,
    ) -> tuple[Any, Payload]:
        """Returns the answer to a request and its payload; see `Connected.repeated`.

        Args:
            timeout: of the call, in seconds, beside which the network has a second; None: that of the client.
        """
        seconds = self.timeout if timeout is None else timeout
        deadline = None if seconds is None else time.monotonic() + seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._once(request, payload, owner, timeout)
            except Disconnected:
                if deadline is not None and time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def end_waits(self, owner: object) -> None:
        """Ends the waits of an owner with `Closed`."""
        if self._forks == forking.forks:
            self._link.end_waits(owner, lambda: Closed("the replay is closed"))

    def add_stream(self, stream: SampleStream) -> None:
        """Notes a stream, for which `close` waits."""
        self._samples.append(stream)

    def _wait_for_samples(self) -> None:
        deadline = None if self.timeout is None else time.monotonic() + self.timeout
        for stream in self._samples:
            if stream.owes_samples:
                stream.wait(None if deadline is None else max(deadline - time.monotonic(), 0.0))

    def close(self) -> None:
        """Waits for the items of writers and the samples on their way, and then does the same as `abandon`.

        Raises:
            DeadlineExceeded, Disconnected: some are not confirmed within the client's timeout; `.pending` is their
                number.
            Closed: a queue refused samples.
        """
        try:
            if not self._is_closed and self._forks == forking.forks:
                if self._writers is not None:
                    self._writers.wait_until_applied()
                self._wait_for_samples()
        finally:
            self.abandon()

    @property
    def unconfirmed(self) -> tuple[int, int]:
        """Number of items of writers, at most, and of samples that are not known to be stored."""
        if self._forks != forking.forks or self._is_closed:
            return 0, 0
        items = 0 if self._writers is None else self._writers.unacknowledged
        return items, sum(stream.owed for stream in self._samples)

    def abandon(self) -> None:
        """Ends the connections, and every wait with `Closed`. A second call does nothing."""
        if self._forks != forking.forks or self._is_closed:
            return
        self._is_closed = True
        self._link.close()
        if self._writers is not None:
            self._writers.close()
        for stream in self._samples:
            stream.close()
