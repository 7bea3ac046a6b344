"""Episodes in one Parquet file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.saving import save_file
from headrace.datasets.progress import Report
from headrace.trajectories.episode import Episode

if TYPE_CHECKING:
    from headrace.replay import Replay


def save_parquet(
    source: Iterable[Episode] | Replay,
    path: str | os.PathLike[str],
    *,
    compression: str = "zstd",
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    progress: bool | Report | None = None,
) -> Path:
    """Write episodes to a Parquet file, all or nothing.

    An episode of T steps is T + 1 rows, the last with the final observation; what has T values is null there. Columns
    are `episode_id`, `step`, `is_final` and the arrays by name (`observations/camera`): plain columns where a step is
    one value, else lists of the flat values, whose shape and dtype stand in the file's metadata. A row group holds
    whole episodes, or a part of a long one.

    Args:
        source: an iterable of `hr.Episode`, or a Replay.
        path: of the file.
        compression: any that pyarrow knows: "zstd", "snappy", "gzip", "lz4", "brotli", "none".
        metadata: anything that is to be in `dataset.metadata` when it is read: a mapping of numbers, strings, arrays,
            lists and mappings.
        overwrite: replace a file that is there, once the new one is complete.
        progress: True for a bar, or a callable `f(done, total)`.

    Returns:
        The path of the file.

    Raises:
        FileExistsError: the file is there and `overwrite` is False.
        SpecError: an episode that is unlike the first, or a dtype that Arrow does not have; with the path of the array.
        TypeError: something that is not an episode.
        ValueError: no episodes, or a compression that pyarrow does not know.
        ImportError: pyarrow is not installed.

    >>> import tempfile, headrace as hr
    >>> episode = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> path = save_parquet([episode], Path(tempfile.mkdtemp()) / "line.parquet")
    >>> load_parquet(path)[0] == episode
    True
    """
    # Rules: datasets Q1-Q3
    from headrace.datasets.parquet.reading import check_written
    from headrace.datasets.parquet.writing import ParquetWriter, check_compression

    check_compression(compression)
    return save_file(
        source,
        Path(path),
        lambda temporary, header: ParquetWriter(temporary, header, compression),
        check_written,
        metadata=metadata,
        overwrite=overwrite,
        progress=progress,
    )


def load_parquet(path: str | os.PathLike[str]) -> EpisodeDataset:
    """Open a Parquet file of episodes: one of `save_parquet`, or another's with the same names.

    Opening reads no steps; an episode is read with the row groups that it lies in. A file of another origin needs
    `episode_id` (or `episode_index`), `is_final`, `observations`, `actions`, `rewards` (or their singulars),
    `terminations` (or `terminated`) and `truncations` (or `truncated`).

    Args:
        path: of the file.

    Raises:
        FileNotFoundError: no such file.
        DatasetError: no Parquet file, a damaged one, or columns that are missing or do not fit.
        ImportError: pyarrow is not installed.
    """
    # Rules: datasets Q4
    from headrace.datasets.parquet.reading import open_parquet

    return open_parquet(Path(path))
