"""How far a command is, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import click

from headrace.terminal import ProgressBar, is_terminal

# Work that takes less than the first number of seconds needs no plain line; later ones follow at the second.
_PLAIN_AFTER, _PLAIN_EVERY = 2.0, 10.0


class ProgressLine:
    """A progress bar on a terminal; elsewhere, as in a log file, a plain line every ten seconds.

    Everything goes to standard error, because standard output has the result of the command.

    Args:
        total: how many there will be; 0: unknown.
        unit: what is counted.
        quiet: shows nothing.
        clock: returns seconds.
    """

    def __init__(
        self, total: int, unit: str, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unit, self._quiet, self._clock = unit, quiet, clock
        self._of_total = f"/{total}" if total else ""
        self._next_plain = clock() + _PLAIN_AFTER
        self._bar: ProgressBar | None = None
        if not quiet and is_terminal(sys.stderr):
            self._bar = ProgressBar(sys.stderr, total, clock=clock)

    def show(self, done: int, text: str = "") -> None:
        """Says how many are done, and a text."""
        line = f"{done}{self._of_total} {self._unit}  {text}".rstrip()
        if self._bar is not None:
            # The bar shows the share, so a text takes the place of the count on narrow terminals.
            self._bar.show(done, text or line)
        elif not self._quiet and self._clock() >= self._next_plain:
            self._next_plain = self._clock() + _PLAIN_EVERY
            click.echo(line, err=True)

    def warn(self, text: str) -> None:
        """Prints a warning on a line of its own, also when the command is quiet."""
        if self._bar is not None:
            self._bar.erase()
        click.echo(f"Warning: {text}", err=True)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.show(0, "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.erase()
