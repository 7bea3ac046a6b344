"""What a person sees: one line of progress, and tables at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

# Seconds to the first plain line, and between two: what takes less needs no progress.
_PLAIN_AFTER, _PLAIN_EVERY = 2.0, 10.0


class ProgressLine:
    """A bar with a text behind it on a terminal; elsewhere (a log file) a plain line every ten seconds.

    It goes to standard error: what a command prints on standard output is its result.

    Args:
        total: how many there will be; 0: unknown.
        unit: what is counted.
        quiet: show nothing.
        clock: tells seconds; tests give one that they move.
    """

    def __init__(
        self, total: int, unit: str, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._unit, self._clock = unit, clock
        self._of_total = f"/{total}" if total else ""
        self._console = Console(stderr=True, quiet=quiet)
        self._next_plain = clock() + _PLAIN_AFTER
        self._bar = Progress(
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total or None, text="")

    def show(self, done: int, text: str = "") -> None:
        """Say where it stands."""
        line = f"{done}{self._of_total} {self._unit}  {text}".rstrip()
        if self._console.is_terminal:
            # The bar says how far it is; a long line would push it off a narrow terminal.
            self._bar.update(self._task, completed=done, text=text or line)
        elif self._clock() >= self._next_plain:
            self._next_plain = self._clock() + _PLAIN_EVERY
            self._console.print(line, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def show(console: Console, title: str, table: Table) -> None:
    """Prints a title, in one line however narrow the table is, and the table below it."""
    console.print(title, style="italic", markup=False, highlight=False, soft_wrap=True)
    console.print(table)


def facts(rows: Sequence[tuple[str, Any]]) -> Table:
    """A table of names and values."""
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, number(value))
    return table


def spreads(rows: Sequence[tuple[str, dict[str, float | None]]]) -> Table:
    """A table of mean, least and greatest."""
    table = Table()
    for name in ("", "mean", "min", "max"):
        table.add_column(name, justify="right" if name else "left")
    for name, spread in rows:
        table.add_row(name, *(number(spread[column]) for column in ("mean", "min", "max")))
    return table


def number(value: object) -> str:
    """A value as a person reads it.

    >>> number(None), number(12.3456), number(1234567), number(0.00012)
    ('-', '12.35', '1234567', '0.00012')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"
    return str(value)
