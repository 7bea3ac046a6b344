"""Public functions for npz files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.export import export
from headrace.datasets.exporting.header import Header, check_metadata
from headrace.datasets.exporting.progress import Report
from headrace.datasets.npz.reading import open_npz
from headrace.datasets.npz.writing import NpzWriter
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
    """Writes episodes to an npz file, all or nothing.

    Each array holds the rows of all episodes, one episode after the other. With T_i transitions in episode i,
    `observations/...` has `sum(T_i + 1)` rows. `actions/...`, `rewards`, `terminations` and `truncations` have
    `sum(T_i)` rows. `infos/...` and `extras/...` have as many rows as were recorded. `episode_lengths` is int64[E], the
    T_i. `numpy.load(path, allow_pickle=False)` reads every array. One episode at a time is in memory.

    Args:
        source: an iterable of `hr.Episode`, or a Replay.
        path: of the file; `.npz` is added if it is missing.
        compressed: whether the arrays are compressed: smaller files that take longer to write.
        metadata: content of `dataset.metadata` after reading: numbers, strings, arrays, lists and mappings by name.
        overwrite: whether an existing file is replaced, once the new one is complete.
        progress: True for a bar, or a callable `f(done, total)`.

    Returns:
        The path of the file, with its suffix.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        SpecError: an episode has another structure than the first; with its number and the path of the array.
        TypeError: an element of the source is not an episode.
        ValueError: the source has no episodes.

    >>> import tempfile, headrace as hr
    >>> episode = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> path = save_npz([episode], Path(tempfile.mkdtemp()) / "line")
    >>> path.name, load_npz(path)[0] == episode
    ('line.npz', True)
    """
    # Rules: datasets Z1
    check_metadata(metadata)
    return export(
        source,
        with_suffix(path),
        lambda temporary, structure: NpzWriter(temporary, Header(structure, metadata), compressed),
        overwrite=overwrite,
        progress=progress,
    )


def load_npz(path: str | os.PathLike[str]) -> EpisodeDataset:
    """Opens an npz file of episodes, written by `save_npz` or by another tool.

    A file of another tool needs `observations`, `actions`, `rewards`, `terminations` (or `terminals`), `truncations`
    (or `timeouts`), and either `episode_lengths` or `next_observations`. The file is read at once; arrays of
    more than 64 MiB lie in temporary files (in the folder that `TMPDIR` names).

    Args:
        path: of the file; `.npz` may be left out.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not an npz file, is damaged, or has arrays that do not fit; with the file and the
            array.
    """
    # Rules: datasets Z3
    found = Path(path)
    return open_npz(found if found.exists() else with_suffix(found))


def with_suffix(path: str | os.PathLike[str]) -> Path:
    """Returns the path with `.npz` at its end.

    >>> str(with_suffix("data.v1")), str(with_suffix("data.npz"))
    ('data.v1.npz', 'data.npz')
    """
    path = Path(path)
    return path if path.suffix == _SUFFIX else path.with_name(path.name + _SUFFIX)
