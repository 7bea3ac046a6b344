"""Episodes one by one into one file, all or nothing: what Parquet and npz share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from headrace.datasets.exporting.atomic import writing
from headrace.datasets.exporting.header import Header
from headrace.datasets.exporting.json_values import encode
from headrace.datasets.exporting.source import episodes_of
from headrace.datasets.exporting.structure import Structure
from headrace.datasets.progress import Report, check_progress, counting

_log = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]


class EpisodeWriter(Protocol):
    """Writes one file."""

    def append(self, index: int, arrays: Mapping[str, Array]) -> None:
        """The next episode's arrays by name; they have the structure of the first."""

    def finish(self) -> None:
        """No more episodes come; the header is complete."""

    def close(self) -> None:
        """Let go of everything, finished or not."""


def save_file(
    source: Any,
    target: Path,
    make_writer: Callable[[Path, Header], EpisodeWriter],
    check: Callable[[Path, Header], None],
    *,
    metadata: Mapping[str, Any] | None,
    overwrite: bool,
    progress: bool | Report | None,
) -> Path:
    """Write all episodes of a source to one file.

    Args:
        source: see `episodes_of`.
        target: the file.
        make_writer: called with the temporary file's name and the header, whose structure is the first episode's.
        check: reopens the finished file and raises if it is not what the header says.
        metadata, overwrite, progress: as for `save_npz`.

    Raises:
        ValueError: no episodes.
        Whatever `writing`, `episodes_of` and `Structure.check` raise.
    """
    # Rules: datasets G1, G5-G7, G9
    check_progress(progress)
    if not (metadata is None or isinstance(metadata, Mapping)):
        raise TypeError(f"metadata: expected a mapping, got {type(metadata).__name__}")
    encode(dict(metadata or {}), "metadata")
    episodes, total = episodes_of(source)
    with writing(target, overwrite) as temporary, counting(progress, total) as one_more:
        header: Header | None = None
        writer: EpisodeWriter | None = None
        try:
            for index, episode in enumerate(episodes):
                if header is None or writer is None:
                    header = Header(Structure.of(episode), metadata)
                    writer = make_writer(temporary, header)
                arrays = header.structure.check(index, episode)
                header.add(episode, arrays)
                writer.append(index, arrays)
                one_more()
            if header is None or writer is None:
                raise ValueError(f"expected at least one episode, got none; {target} was not written")
            writer.finish()
        finally:
            if writer is not None:
                writer.close()
        check(temporary, header)
    _log.info("wrote %d episodes, %d steps to %s", len(header.lengths), sum(header.lengths), target)
    return target
