"""Progress of an export."""

# Rules: datasets G9

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from headrace.terminal import ProgressBar, is_terminal

# f(done, total): number of episodes done so far; the total is None where the source has no length.
Report = Callable[[int, int | None], None]


@contextmanager
def counting(progress: bool | Report | None, total: int | None) -> Iterator[Callable[[], None]]:
    """Yields a function to call after each episode.

    Args:
        progress: None or False reports nothing; True shows a bar if standard error is a terminal; a callable gets
            `(done, total)`, with `done` rising by one. An exception of the callable ends the export.
        total: number of episodes, if it is known.

    Raises:
        TypeError: another kind of `progress`, before the block begins.

    >>> seen = []
    >>> with counting(lambda done, total: seen.append((done, total)), 2) as one_more:
    ...     one_more()
    ...     one_more()
    >>> seen
    [(1, 2), (2, 2)]
    """
    check_progress(progress)
    numbers = count(1)
    if callable(progress):
        yield lambda: progress(next(numbers), total)
    elif progress and is_terminal(sys.stderr):
        bar = ProgressBar(sys.stderr, total)
        of_total = f"/{total}" if total else ""

        def show() -> None:
            done = next(numbers)
            bar.show(done, f"{done}{of_total} episodes")

        try:
            yield show
        finally:
            bar.erase()
    else:
        yield lambda: None


def check_progress(progress: Any) -> None:
    """Refuses a wrong `progress` (see `counting`) before any file is touched.

    Raises:
        TypeError: neither None nor a bool nor a callable.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress: expected None, True or a callable f(done, total), got {type(progress).__name__}"
        )
