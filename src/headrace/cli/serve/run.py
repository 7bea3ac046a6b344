"""Runs a service until a signal comes."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from headrace.cli.serve.service import Ready, Service
from headrace.cli.serve.settings import read_settings

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# A signal that comes just before the thread sleeps does not wake it.
_LONGEST_SLEEP = 0.5
_CHECKED = (
    "no mistake found in the settings, tokens and certificates (checked without network: no host was looked up, no "
    "address or file of a store or checkpoint was opened)"
)


def run(path: Path, *, check: bool, as_json: bool) -> None:
    """Serves, or only checks the settings; see `headrace serve --help`.

    Raises:
        click.BadParameter: a mistake in the settings.
        click.ClickException: it could not start.
        CheckpointError: a store or a checkpoint cannot be used, or a replay could not be saved at the end.
    """
    _log_to_standard_error()
    with _warnings_of_one_line(), _told_by_signals() as stop, Service(read_settings(path)) as service:
        if check:
            service.check()
            click.echo(json.dumps({"path": str(path), "ok": True}) if as_json else f"{path}: {_CHECKED}")
            return
        try:
            service.run(lambda ready: _announce(ready, as_json=as_json), stop.wait)
        except OSError as error:
            raise click.ClickException(f"{path}: cannot serve: {error}") from error


def _log_to_standard_error() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("headrace").setLevel(logging.INFO)
    logging.captureWarnings(True)


@contextmanager
def _warnings_of_one_line() -> Iterator[None]:
    """Leaves lines of Headrace's source out of warnings: they are about the file or a checkpoint."""

    def message_only(
        message: Warning | str,
        category: type[Warning],  # noqa: ARG001 - this and the rest as in `warnings.formatwarning`
        filename: str,  # noqa: ARG001
        lineno: int,  # noqa: ARG001
        line: str | None = None,  # noqa: ARG001
    ) -> str:
        return str(message)

    before = warnings.formatwarning
    warnings.formatwarning = message_only
    try:
        yield
    finally:
        warnings.formatwarning = before


def _announce(ready: Ready, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(ready)))
        return
    page = "" if ready.page is None else f", page at {ready.page}"
    click.echo(f"ready at {', '.join(ready.addresses)}{page}")


class Stop:
    """Tells whether to end; `now` may be called from a handler of signals."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def now(self) -> None:
        """Ends the present and every later wait."""
        self._asked.set()

    def wait(self, seconds: float | None) -> bool:
        """Waits at most so many seconds, None without limit, and returns whether to end."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._asked.is_set():
            left = _LONGEST_SLEEP if end is None else end - time.monotonic()
            if left <= 0:
                return False
            self._asked.wait(min(left, _LONGEST_SLEEP))
        return True


@contextmanager
def _told_by_signals() -> Iterator[Stop]:
    """Lets the first SIGTERM or SIGINT end the service, and gives the second one its usual effect."""
    stop = Stop()

    def end(*_: object) -> None:
        restore()
        stop.now()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, end) for number in _SIGNALS}
    try:
        yield stop
    finally:
        restore()
