"""Export of episodes, one at a time and all or nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from headrace.datasets.exporting.atomic import writing
from headrace.datasets.exporting.progress import Report, check_progress, counting
from headrace.datasets.exporting.structure import Array, Structure
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)


class EpisodeWriter(Protocol):
    """Writes the episodes of one export."""

    def append(self, index: int, episode: Episode, arrays: dict[str, Array]) -> None:
        """Writes the next episode, whose arrays have the structure of the first one's."""

    def finish(self) -> None:
        """Completes the files, reads them again and compares them with what was appended.

        Raises:
            DatasetError: the files hold something else.
        """

    def close(self) -> None:
        """Releases all resources, after `finish` or instead of it."""


def export(
    source: Any,
    target: Path,
    make_writer: Callable[[Path, Structure], EpisodeWriter],
    *,
    overwrite: bool,
    progress: bool | Report | None,
) -> Path:
    """Writes all episodes of a source.

    Args:
        source: see `episodes_of`.
        target: the file or folder to write.
        make_writer: called with the temporary path and the structure of the first episode.
        overwrite: see `writing`.
        progress: see `counting`.

    Returns:
        The target.

    Raises:
        ValueError: the source has no episodes.
        SpecError: an episode has another structure than the first.
        TypeError, FileExistsError: see `episodes_of`, `counting` and `writing`.
    """
    # Rules: datasets G1, G5-G7, G9
    check_progress(progress)
    episodes, total = episodes_of(source)
    count = steps = 0
    with writing(target, overwrite) as temporary, counting(progress, total) as one_more:
        first = next(episodes, None)
        if first is None:
            raise ValueError(f"source: expected at least one episode, got none; {target} was not written")
        structure = Structure.of(first)
        with closing(make_writer(temporary, structure)) as writer:
            for episode in chain([first], episodes):
                writer.append(count, episode, structure.check(count, episode))
                count, steps = count + 1, steps + len(episode)
                one_more()
            writer.finish()
    _log.info("wrote %d episodes, %d steps to %s", count, steps, target)
    return target


def episodes_of(source: Any) -> tuple[Iterator[Episode], int | None]:
    """Returns the episodes of a source, read one at a time, and their number if the source has a length.

    Args:
        source: an iterable of `Episode`, or a Replay, of which the complete episodes are taken.

    Raises:
        TypeError: the source is neither; or, from the iterator, an element is not an `Episode` (with its position).

    >>> episode = Episode([0.0, 1.0], [1], [1.0], [True], [False])
    >>> iterator, total = episodes_of([episode, episode])
    >>> total, len(list(iterator))
    (2, 2)
    """
    # Rules: datasets G1
    if isinstance(source, Iterable):
        return _checked(source), len(source) if isinstance(source, Sized) else None
    from headrace.replay import Replay  # Loads the kernels, which a list of episodes does not need.

    if isinstance(source, Replay):
        from headrace.datasets.stored_episodes import episodes

        return episodes(source), None
    hint = "; put it in a list" if isinstance(source, Episode) else ""
    raise TypeError(
        f"source: expected an iterable of hr.Episode or a Replay, got {type(source).__name__}{hint}"
    )


def _checked(source: Iterable[Any]) -> Iterator[Episode]:
    for position, episode in enumerate(source):
        if not isinstance(episode, Episode):
            raise TypeError(
                f"source: expected an hr.Episode at position {position}, got {type(episode).__name__}"
            )
        yield episode
