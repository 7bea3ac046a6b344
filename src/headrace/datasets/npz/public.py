"""Episodes in one npz file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.saving import save_file
from headrace.datasets.npz.reading import NpzDataset, check_written
from headrace.datasets.npz.writing import NpzWriter
from headrace.datasets.progress import Report
from headrace.trajectories.episode import Episode

if TYPE_CHECKING:
    from headrace.replay import Replay

_SUFFIX = ".npz"


def save_npz(
    source: Iterable[Episode] | Replay,
    path: str | os.PathLike[str],
    *,
    compressed: bool = True,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool | Report | None = None,
) -> Path:
    """Write episodes to an npz file, all or nothing.

    The arrays of all episodes stand one behind the other: `observations/...` has `sum(T_i + 1)` rows, `actions/...`,
    `rewards`, `terminations` and `truncations` have `sum(T_i)`, `infos/...` and `extras/...` as many as the episodes
    had; `episode_lengths` is int64[E], the T_i. `numpy.load(path, allow_pickle=False)` reads every one. One episode at
    a time is in memory.

    Args:
        source: an iterable of `hr.Episode`, or a Replay.
        path: of the file; `.npz` is added if it is missing.
        compressed: smaller files that take longer to write.
        metadata: anything that is to be in `dataset.metadata` when it is read: a mapping of numbers, strings, arrays,
            lists and mappings.
        overwrite: replace a file that is there, once the new one is complete.
        progress: True for a bar, or a callable `f(done, total)`.

    Returns:
        The path of the file, with its suffix.

    Raises:
        FileExistsError: the file is there and `overwrite` is False.
        SpecError: an episode that is unlike the first; with its number and the path of the array.
        TypeError: something that is not an episode.
        ValueError: no episodes.

    >>> import tempfile, headrace as hr
    >>> episode = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> path = save_npz([episode], Path(tempfile.mkdtemp()) / "line")
    >>> path.name, load_npz(path)[0] == episode
    ('line.npz', True)
    """
    # Rules: datasets Z1
    return save_file(
        source,
        with_suffix(path),
        lambda temporary, header: NpzWriter(temporary, header, compressed),
        check_written,
        metadata=metadata,
        overwrite=overwrite,
        progress=progress,
    )


def load_npz(path: str | os.PathLike[str]) -> EpisodeDataset:
    """Open an npz file of episodes: one of `save_npz`, or another's with the same names.

    A file of another origin needs `observations`, `actions`, `rewards`, `terminations` (or `terminals`), `truncations`
    (or `timeouts`), and either `episode_lengths` or `next_observations`. All arrays are read into memory at once.

    Args:
        path: of the file; `.npz` may be left out.

    Raises:
        FileNotFoundError: no such file.
        DatasetError: no npz file, a damaged one, or arrays that do not fit; with the file and the array.
    """
    # Rules: datasets Z3
    found = Path(path)
    return NpzDataset(found if found.exists() else with_suffix(found))


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """The path with `.npz` at its end.

    >>> str(with_suffix("data.v1")), str(with_suffix("data.npz"))
    ('data.v1.npz', 'data.npz')
    """
    path = Path(path)
    return path if path.suffix == _SUFFIX else path.with_name(path.name + _SUFFIX)
