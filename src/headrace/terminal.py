"""Terminals: whether a stream is one, how wide it is, and a progress bar on it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

_DEFAULT_COLUMNS = 80
_BAR_COLUMNS = 20
# At most ten drawings per second: more cannot be read, and would slow the work down.
_SECONDS_BETWEEN_DRAWINGS = 0.1


def is_terminal(stream: TextIO | None) -> bool:
    """Returns True for a terminal on which a line can be drawn again; False for files, pipes and dumb terminals."""
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    except (AttributeError, ValueError):  # A replacement without the method, or a closed stream.
        return False


def columns(stream: TextIO) -> int:
    """Returns the width of the stream's terminal, or the environment variable COLUMNS where it is set."""
    try:
        own = os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        own = 0
    return shutil.get_terminal_size((own or _DEFAULT_COLUMNS, 24)).columns


class ProgressBar:
    """One line on a terminal that is redrawn while work goes on, and erased at the end.

    Args:
        stream: the terminal.
        total: number of units of work; None or 0 if unknown: then there is no bar and no percentage.
        clock: returns seconds.

    >>> import io
    >>> stream = io.StringIO()
    >>> ProgressBar(stream, 4, clock=lambda: 0.0).show(1, "1/4 episodes")
    >>> stream.getvalue().strip()
    '[#####---------------]  25%  0:00:00  1/4 episodes'
    """

    def __init__(
        self, stream: TextIO, total: int | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._total, self._clock = stream, total, clock
        self._began = self._next = clock()

    def show(self, done: int, text: str) -> None:
        """Draws the line, unless it was drawn within the last tenth of a second.

        Args:
            done: number of units done; the line is always drawn when all are done.
            text: printed after the bar, cut to the width of the terminal.
        """
        now = self._clock()
        if now < self._next and done != self._total:
            return
        self._next = now + _SECONDS_BETWEEN_DRAWINGS
        elapsed = timedelta(seconds=int(now - self._began))
        self._draw("  ".join([*self._bar(done), str(elapsed), text]))

    def erase(self) -> None:
        """Leaves an empty line, with the cursor at its beginning."""
        self._draw("")
        self._stream.write("\r")
        self._stream.flush()

    def _bar(self, done: int) -> list[str]:
        if not self._total:
            return []
        done = min(done, self._total)
        filled = "#" * (_BAR_COLUMNS * done // self._total)
        return [f"[{filled:-<{_BAR_COLUMNS}}] {100 * done // self._total:3d}%"]

    def _draw(self, line: str) -> None:
        # The last column stays free: some terminals begin a new line when it is written.
        width = max(columns(self._stream) - 1, 0)
        self._stream.write(f"\r{line[:width]:<{width}}")
        self._stream.flush()
