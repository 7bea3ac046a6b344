"""Prints a record once, or draws it again and again in the same place."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

import click

from headrace.cli.options import SERVER_SCHEMES
from headrace.cli.tables import has_styles
from headrace.cli.tls_files import TlsFiles
from headrace.cli.top.page import Page
from headrace.cli.top.remote import RemoteServer
from headrace.cli.top.screen import screen
from headrace.monitor.record import to_json
from headrace.terminal import columns, is_terminal

# Control sequences of ECMA-48.
_CLEAR_SCREEN, _TO_TOP, _CLEAR_LINE_END, _CLEAR_BELOW = "\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"
_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"


def run(address: str, tls_files: TlsFiles, *, once: bool, as_json: bool, interval: float) -> None:
    """Shows the record of a live page or a server; see `headrace top --help`.

    Raises:
        click.ClickException: nothing answers at the beginning.
        click.BadParameter: the address is of another kind, or no certificate in a file.
        click.UsageError: certificates for a live page.
        Disconnected, DeadlineExceeded: the server does not answer at the beginning.
    """
    tls_files.require_server(address)
    with RemoteServer(address, tls_files) if address.startswith(SERVER_SCHEMES) else Page(address) as source:
        _show(source, once=once, as_json=as_json, interval=interval)


def _show(source: RemoteServer | Page, *, once: bool, as_json: bool, interval: float) -> None:
    record = source.read()
    if as_json:
        click.echo(to_json(record))
    elif once or not is_terminal(sys.stdout):
        width = columns(sys.stdout) if is_terminal(sys.stdout) else None
        for line in screen(record, width):
            click.echo(line, color=None if has_styles(sys.stdout) else False)
    else:
        # Ctrl-C is the usual end, so no error.
        with suppress(KeyboardInterrupt), _sigterm_raises():
            watch(source.read, source.address, interval, sys.stdout)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Lets SIGTERM end the block by an exception, so that the terminal has its cursor again."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def watch(
    read: Callable[[], dict[str, Any]],
    address: str,
    interval: float,
    stream: TextIO,
    *,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Draws records in the same place of a terminal until an exception ends it, such as that of Ctrl-C.

    A page that no longer answers is asked again; its last numbers stay.

    Args:
        read: returns the newest record.
        address: of the page or the server, for the first line.
        interval: seconds between two drawings.
        stream: the terminal.
        wait: sleeps for some seconds.
    """
    lines: list[str] = []
    stream.write(_HIDE_CURSOR + _CLEAR_SCREEN)
    try:
        while True:
            try:
                record = read()
                lines = [*screen(record, columns(stream))]
                state = f"{address}  {record['recorded_seconds']:.0f} s recorded  Ctrl-C ends"
            except click.ClickException as error:
                state = f"{error.message}  (the last numbers; asking again)"
            _draw([state, "", *lines], stream)
            wait(interval)
    finally:
        stream.write(_SHOW_CURSOR)
        stream.flush()


def _draw(lines: list[str], stream: TextIO) -> None:
    most = max(1, _rows(stream) - 1)
    shown = lines[:most]
    if any(lines[most:]):
        hidden = sum(1 for line in lines[most - 1 :] if line)
        shown[-1] = f"{hidden} more lines: a higher terminal shows them, or --once"
    text = "".join(f"{line}{_CLEAR_LINE_END}\n" for line in shown)
    if not has_styles(stream):
        text = "".join(f"{click.unstyle(line)}{_CLEAR_LINE_END}\n" for line in shown)
    stream.write(_TO_TOP + text + _CLEAR_BELOW)
    stream.flush()


def _rows(stream: TextIO) -> int:
    try:
        lines = os.get_terminal_size(stream.fileno()).lines
    except (AttributeError, OSError, ValueError):
        lines = 0
    # A terminal may not know its size.
    return lines or 24
