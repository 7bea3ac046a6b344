"""What a person sees: one line of progress, and tables at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

_PLAIN_EVERY = 10.0


class ProgressLine:
    """A bar with a text behind it on a terminal; elsewhere (a log file) a plain line every ten seconds.

    Args:
        total: frames at the end.
        console: where it goes.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._total, self._console = total, console
        self._next_plain = 0.0
        self._bar = Progress(
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, text="")

    def show(self, frames: int, text: str) -> None:
        """Say where it stands."""
        if self._console.is_terminal:
            self._bar.update(self._task, completed=frames, text=text)
        elif time.monotonic() >= self._next_plain:
            self._next_plain = time.monotonic() + _PLAIN_EVERY
            self._console.print(f"{frames}/{self._total}  {text}", highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def facts(title: str, rows: Sequence[tuple[str, Any]]) -> Table:
    """A table of names and values."""
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows:
        table.add_row(name, number(value))
    return table


def spreads(title: str, rows: Sequence[tuple[str, dict[str, float | None]]]) -> Table:
    """A table of mean, least and greatest."""
    table = Table(title=title, title_justify="left")
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
