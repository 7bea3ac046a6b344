"""How far an export is."""

# Rules: datasets G9

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.terminal import ProgressBar, is_terminal

# f(done, total): the number of episodes done, and of all episodes; None where the source has no length.
Report = Callable[[int, int | None], None]


@contextmanager
def counting(progress: bool | Report | None, total: int | None) -> Iterator[Callable[[], None]]:
    """Gives a function to call after each episode.

    Args:
        progress: None and False show nothing; True shows a bar where standard error is a terminal; a callable gets
            `(done, total)`, with `done` rising by one. An exception of the callable ends the export.
        total: the number of episodes; None if unknown.

    Raises:
        TypeError: another kind of `progress`, before anything is done.

    >>> seen = []
    >>> with counting(lambda done, total: seen.append((done, total)), 2) as one_more:
    ...     one_more()
    ...     one_more()
    >>> seen
    [(1, 2), (2, 2)]
    """
    with _bar(total) if progress is True else _given(progress) as report:
        done = 0

        def one_more() -> None:
            nonlocal done
            done += 1
            report(done, total)

        yield one_more


def check_progress(progress: Any) -> None:
    """Refuses a wrong `progress` (see `counting`), before any file is written.

    Raises:
        TypeError: `progress` is not None, a bool or a callable.
    """
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(
            f"progress: expected None, True or a callable f(done, total), got {type(progress).__name__}"
        )


@contextmanager
def _given(progress: bool | Report | None) -> Iterator[Report]:
    check_progress(progress)
    yield progress if callable(progress) else _nothing


def _nothing(done: int, total: int | None) -> None:
    """Shows nothing."""


@contextmanager
def _bar(total: int | None) -> Iterator[Report]:
    if not is_terminal(sys.stderr):
        yield _nothing
        return
    bar = ProgressBar(sys.stderr, total)
    try:
        yield lambda done, total: bar.show(done, f"{done}{f'/{total}' if total else ''} episodes")
    finally:
        bar.erase()
