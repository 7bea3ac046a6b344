"""Public functions for Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.exporting.export import export
from headrace.datasets.exporting.header import Header, check_metadata
from headrace.datasets.exporting.progress import Report
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
    """Writes episodes to a Parquet file, all or nothing.

    An episode of T steps has T + 1 rows. The last row has the final observation; columns of T values are null there.
    The columns are `episode_id`, `step`, `is_final` and the arrays by name (`observations/camera`). One value a step
    is a plain column. An array is a list of its flat values, whose shape and dtype are in the file's metadata. A row
    group holds whole episodes, or a part of a long one.

    Args:
        source: an iterable of `hr.Episode`, or a Replay.
        path: of the file.
        compression: any that pyarrow knows: "zstd", "snappy", "gzip", "lz4", "brotli", "none".
        metadata: content of `dataset.metadata` after reading: numbers, strings, arrays, lists and mappings by name.
        overwrite: whether an existing file is replaced, once the new one is complete.
        progress: True for a bar, or a callable `f(done, total)`.

    Returns:
        The path of the file.

    Raises:
        FileExistsError: the file exists and `overwrite` is False.
        SpecError: an episode has another structure than the first, or a dtype that Arrow does not have; with the path
            of the array.
        TypeError: an element of the source is not an episode.
        ValueError: the source has no episodes, or pyarrow does not know the compression.
        ImportError: pyarrow is not installed.

    >>> import tempfile, headrace as hr
    >>> episode = hr.Episode([0.0, 1.0], [1], [1.0], [True], [False], seed=7)
    >>> path = save_parquet([episode], Path(tempfile.mkdtemp()) / "line.parquet")
    >>> load_parquet(path)[0] == episode
    True
    """
    # Rules: datasets Q1-Q3
    from headrace.datasets.parquet.writing import ParquetWriter, check_compression

    check_compression(compression)
    check_metadata(metadata)
    return export(
        source,
        Path(path),
        lambda temporary, structure: ParquetWriter(temporary, Header(structure, metadata), compression),
        overwrite=overwrite,
        progress=progress,
    )


def load_parquet(path: str | os.PathLike[str]) -> EpisodeDataset:
    """Opens a Parquet file of episodes, written by `save_parquet` or by another tool.

    Opening reads no steps. An episode is read with the row groups that it lies in. A file of another tool needs
    `episode_id` (or `episode_index`), `is_final`, `observations`, `actions`, `rewards` (or their singulars),
    `terminations` (or `terminated`) and `truncations` (or `truncated`).

    Args:
        path: of the file.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not a Parquet file, is damaged, or has columns that are missing or do not fit.
        ImportError: pyarrow is not installed.
    """
    # Rules: datasets Q4
    from headrace.datasets.parquet.reading import open_parquet

    return open_parquet(Path(path))
