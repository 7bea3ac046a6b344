"""Asks a server for its statistics, and keeps them as the live page does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from headrace.cli.server_address import connect
from headrace.cli.tls_files import TlsFiles
from headrace.closing import Closing
from headrace.monitor.record import record_of
from headrace.monitor.recorder import SECONDS_BETWEEN_SAMPLES, Recorder
from headrace.monitor.sources import WholeServer
from headrace.server.statistics import ServerStatistics
from headrace.statistics import ReplayStatistics

_NO_FILES = TlsFiles()
# Of one reading: a server that is gone is told at once, and asked again by the next one.
_SECONDS = 0.25


class RemoteServer(Closing):
    """A server at an address. Each reading asks it once; rates are those since earlier readings.

    Args:
        address: such as "tcp://127.0.0.1:9000".
        tls_files: see `connect`.
        wait: sleeps for some seconds.

    Attributes:
        address: as given.

    Raises:
        click.BadParameter: not an address.
        click.ClickException: the server asks for another token.
        Disconnected, DeadlineExceeded: the server does not answer.
    """

    def __init__(
        self, address: str, tls_files: TlsFiles = _NO_FILES, *, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.address, self._wait = address, wait
        self._client = connect(address, tls_files)
        served = self._client.statistics().served
        self._signatures = {
            name: self._client.replay(name).signature
            for name, record in served.items()
            if isinstance(record, ReplayStatistics)
        }
        self._recorder = Recorder(WholeServer(self, served))
        self._recorder.take()
        self._is_first = True

    def read(self) -> dict[str, Any]:
        """Returns the newest record, as the live page gives it. The first call waits a second, for the rates.

        Raises:
            click.ClickException: the server does not answer.
        """
        if self._is_first:
            self._wait(SECONDS_BETWEEN_SAMPLES)
            self._is_first = False
        self._recorder.take()
        newest = self._recorder.latest
        if newest.server is None:
            raise click.ClickException(
                f"{self.address} does not answer: {next(iter(newest.problems.values()))}"
            )
        return record_of(self._recorder, self._signatures, time.monotonic())

    def statistics(self) -> ServerStatistics:
        """Asks the server once. A lost connection is made again; other retries are left to the next reading."""
        return self._client.statistics(timeout=_SECONDS)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()
