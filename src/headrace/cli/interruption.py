"""Ctrl-C in a command that keeps what it has reached."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import click


class Interrupted(click.ClickException):
    """Ctrl-C, after everything was written; exit code 1, and no "Error:" before the text."""

    def show(self, file: IO[Any] | None = None) -> None:  # noqa: ARG002 - click calls it so
        """Prints the text on standard error."""
        click.echo(self.message, err=True)


def raise_stop(error: BaseException | None, notice: str) -> None:
    """Raises the error that ended a run early, if there is one.

    Args:
        error: None for a run that went to its end.
        notice: the text of the `Interrupted` that takes the place of a KeyboardInterrupt.
    """
    if isinstance(error, KeyboardInterrupt):
        raise Interrupted(notice) from error
    if error is not None:
        raise error


@contextmanager
def finishing(notice: str) -> Iterator[None]:
    """Lets the block go on after Ctrl-C, which prints a notice; a second Ctrl-C ends the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        click.echo(f"{notice}; Ctrl-C again gives it up", err=True)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
