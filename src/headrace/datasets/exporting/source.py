"""Where exported episodes come from: an iterable of them, or a replay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

from headrace.trajectories.episode import Episode


def episodes_of(source: Any) -> tuple[Iterator[Episode], int | None]:
    """The episodes of a source, read once and one at a time, and how many they are if it knows.

    Args:
        source: an iterable of `Episode`, or a Replay, which means its complete episodes.

    Raises:
        TypeError: neither; or, from the iterator, something in it that is not an `Episode`, with its position.

    >>> episode = Episode([0.0, 1.0], [1], [1.0], [True], [False])
    >>> iterator, total = episodes_of([episode, episode])
    >>> total, len(list(iterator))
    (2, 2)
    """
    # Rules: datasets G1
    if not isinstance(source, Iterable):
        from headrace.replay import Replay  # Here: it loads the compiler, which no list of episodes needs.

        if not isinstance(source, Replay):
            hint = "; put it in a list" if isinstance(source, Episode) else ""
            raise TypeError(
                f"source: expected an iterable of hr.Episode or a Replay, got {type(source).__name__}{hint}"
            )
        from headrace.datasets.stored_episodes import episodes

        return episodes(source), None
    return _checked(iter(source)), len(source) if isinstance(source, Sized) else None


def _checked(source: Iterator[Any]) -> Iterator[Episode]:
    for position, episode in enumerate(source):
        if not isinstance(episode, Episode):
            raise TypeError(
                f"source: expected an hr.Episode at position {position}, got {type(episode).__name__}"
            )
        yield episode
