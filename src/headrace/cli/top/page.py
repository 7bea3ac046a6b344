"""Asks a live page for its newest record."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any
from urllib.parse import urlsplit

import click

from headrace.closing import Closing

_TIMEOUT = 10.0
# A record has about 1 KB for each table.
_MAX_BYTES = 16 << 20
_PARTS = {"recorded_seconds", "replays", "queues", "server", "collector"}
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


class Page(Closing):
    """A live page at an address.

    No proxy is used and no redirection is followed, so the token reaches only the address that was given.

    Args:
        address: such as "http://127.0.0.1:8080" or "127.0.0.1:8080".

    Raises:
        click.BadParameter: another kind of address.
    """

    def __init__(self, address: str) -> None:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        try:
            port = parts.port
        except ValueError:
            port = None
        if parts.scheme not in _CONNECTIONS or not parts.hostname:
            raise click.BadParameter(
                "expected the http address of a live page, such as http://127.0.0.1:8080, or the address of a server, "
                f"such as tcp://127.0.0.1:9000, got {address!r}"
            )
        self._kind, self._host, self._port = _CONNECTIONS[parts.scheme], parts.hostname, port
        self._path = parts.path.rstrip("/") + "/api/statistics"
        self.address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def read(self) -> dict[str, Any]:
        """Returns the newest record.

        Raises:
            click.ClickException: the page does not answer, or refuses.
        """
        token = os.environ.get("HEADRACE_TOKEN")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = self._kind(self._host, self._port, timeout=_TIMEOUT)
        try:
            connection.request("GET", self._path, headers=headers)
            answer = connection.getresponse()
            body = answer.read(_MAX_BYTES)
        except http.client.BadStatusLine as error:
            raise click.ClickException(
                f"{self.address} is not a live page; the address of a server begins with tcp:// or unix://"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise click.ClickException(
                f"{self.address} does not answer: {type(error).__name__}: {error}"
            ) from error
        finally:
            connection.close()
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            raise click.ClickException(f"{self.address} needs a token: set HEADRACE_TOKEN to it")
        try:
            record = json.loads(body)
        except ValueError:
            record = None
        is_there = answer.status == http.HTTPStatus.OK
        if not (is_there and isinstance(record, dict) and record.keys() >= _PARTS):
            raise click.ClickException(
                f"{self.address} answers, but is no live page of Headrace ({answer.status})"
            )
        return record

    def close(self) -> None:
        """Does nothing: each reading has a connection of its own."""
