"""Episodes from LeRobot datasets of the versions 2 and 3: Parquet files with a row for each frame.

The layout is described at https://huggingface.co/docs/lerobot: `meta/info.json`, the frames in
`data/chunk-000/episode_000000.parquet` (version 2, one episode a file) or `data/chunk-000/file-000.parquet` (version 3,
several), and tasks in `meta/tasks.jsonl` or `meta/tasks.parquet`.
"""

# Rules: datasets G3, G11

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from headrace.datasets.arrow import pa, to_numpy
from headrace.datasets.dataset import EpisodeDataset
from headrace.datasets.errors import dataset_errors
from headrace.datasets.exporting.structure import Array, part_of
from headrace.datasets.foreign.columns import episode_of
from headrace.datasets.foreign.lerobot_meta import read_info, read_tasks, shapes_of, videos_of
from headrace.datasets.images import decode_images
from headrace.datasets.minari.recorded import one_column
from headrace.datasets.parquet.rows import ParquetRows
from headrace.errors import DatasetError, SpecError
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)

_EPISODE, _FRAME = "episode_index", "frame_index"
_REWARD, _DONE, _SUCCESS = "next.reward", "next.done", "next.success"
_PARTS = {"observation": "observations", "action": "actions"}
_NO_DATA = (_EPISODE, _FRAME, "index", "__index_level_0__", _REWARD, _DONE)
_IMAGES = ("PNG", "JPEG")


class _Place(NamedTuple):
    """The frames of an episode: `start <= row < stop` of a file, and whether its last frame terminates it."""

    file: Path
    start: int
    stop: int
    terminated: bool


class LeRobotDataset(EpisodeDataset):
    """Episodes of a LeRobot dataset, read one at a time. For the arguments see `load_lerobot`."""

    format_name = "lerobot"

    def __init__(self, folder: Path, missing_final: str) -> None:
        self._repeats = missing_final == "repeat"
        info = read_info(folder)
        self._shapes = shapes_of(info)
        self._rows: ParquetRows | None = None
        places: dict[int, _Place] = {}
        for file in _data_files(folder):
            with closing(ParquetRows(file)) as rows, dataset_errors(file):
                names = rows.schema.names
                for index, place in _places(rows):
                    if index in places:
                        raise SpecError(f"episode {index}: expected its rows next to each other in one file")
                    places[index] = place
        self._columns = _columns(file, names, videos := videos_of(info))
        self._has_rewards = _REWARD in names
        if videos:
            _log.warning("%s: videos are not read: %s", folder, ", ".join(videos))
        if not self._has_rewards:
            _log.warning("%s: there is no %s; all rewards are 0", folder, _REWARD)
        self._places = {index: places[index] for index in sorted(places) if self._steps(places[index])}
        self._numbers = list(self._places)
        super().__init__(
            num_episodes=len(self._places),
            total_steps=sum(map(self._steps, self._places.values())),
            metadata={**info, "tasks": read_tasks(folder)},
        )

    def _steps(self, place: _Place) -> int:
        """Returns the number of transitions: the last frame is one only where it is followed by itself."""
        return place.stop - place.start - (not (place.terminated and self._repeats))

    def _open(self, file: Path) -> ParquetRows:
        """Returns an open file; one is open at a time."""
        if self._rows is None or self._rows.path != file:
            self._close()
            self._rows = ParquetRows(file)
        return self._rows

    def _read(self, index: int) -> Episode:
        number = self._numbers[index]
        place = self._places[number]
        table = self._open(place.file).read(place.start, place.stop)
        with dataset_errors(place.file, f"episode {number}"):
            _check_frames(table)
            return self._episode(number, table, self._steps(place))

    def _episode(self, number: int, table: Any, steps: int) -> Episode:
        frames = len(table)
        arrays = {}
        for name, path in self._columns.items():
            array = self._array(table.column(name), name)
            is_observed = part_of(path) == "observations"
            arrays[path] = array[_with_final(frames, steps)] if is_observed else array[:steps]
        rewards = (
            to_numpy(table.column(_REWARD), _REWARD) if self._has_rewards else np.zeros(frames, np.float32)
        )
        is_last = np.arange(steps) == steps - 1
        arrays["rewards"] = one_column(rewards)[:steps].copy()
        arrays["terminations"] = is_last & (steps == frames)
        arrays["truncations"] = is_last & (steps < frames)
        return episode_of(arrays, number)

    def _array(self, values: Any, name: str) -> Array:
        """Returns a column in the shape that the metadata has for it."""
        kind = values.type
        if isinstance(kind, pa.BaseExtensionType):
            values = pa.chunked_array([chunk.storage for chunk in values.chunks], kind.storage_type)
        if pa.types.is_struct(kind):
            return decode_images(_image_files(values, name), None, name, _IMAGES)
        array = to_numpy(values, name).copy()
        shape = self._shapes.get(name, array.shape[1:])
        # Single values are columns without lists; their shape is [1].
        return (
            array
            if shape == (1,) and _part_of_name(name) not in _PARTS
            else array.reshape(len(array), *shape)
        )

    def _close(self) -> None:
        if self._rows is not None:
            self._rows.close()
            self._rows = None


def _part_of_name(name: str) -> str:
    return name.partition(".")[0]


def _data_files(folder: Path) -> list[Path]:
    files = sorted((folder / "data").glob("*/*.parquet"))
    if not files:
        raise DatasetError(
            f"{folder}: expected frames in data/chunk-000/episode_000000.parquet or data/chunk-000/file-000.parquet, "
            "as LeRobot 2 and 3 write them, got none"
        )
    return files


def _places(rows: ParquetRows) -> Iterator[tuple[int, _Place]]:
    """Yields the number and the place of each run of rows of one episode."""
    ids = to_numpy(rows.column(_EPISODE), _EPISODE)
    flag = next((name for name in (_SUCCESS, _DONE) if name in rows.schema.names), None)
    terminated = np.zeros(len(ids)) if flag is None else one_column(to_numpy(rows.column(flag), flag))
    if not len(ids):
        return
    starts = np.concatenate(([0], np.flatnonzero(ids[1:] != ids[:-1]) + 1, [len(ids)]))
    for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        yield int(ids[start]), _Place(rows.path, start, stop, bool(terminated[stop - 1]))


def _columns(file: Path, names: Sequence[str], videos: Sequence[str]) -> dict[str, str]:
    """Maps the name of each column of an episode to its path.

    Raises:
        DatasetError: there are no actions, or no observations but videos.
    """
    for part in _PARTS:
        if not any(_part_of_name(name) == part for name in names):
            raise DatasetError(
                f"{file}: expected columns {part} or {part}.NAME, got {', '.join(names)}"
                + (f"; videos are not read: {', '.join(videos)}" if videos else "")
            )
    return {name: _path(name) for name in names if name not in _NO_DATA}


def _path(name: str) -> str:
    part, *rest = name.split(".")
    return "/".join([_PARTS[part], *rest] if part in _PARTS else ["infos", name.removeprefix("next.")])


def _with_final(frames: int, steps: int) -> Array:
    """Returns the rows of the observations: all frames, and the last one again where it is a transition, too."""
    return np.minimum(np.arange(steps + 1), frames - 1)


def _check_frames(table: Any) -> None:
    if _FRAME in table.column_names:
        numbers = to_numpy(table.column(_FRAME), _FRAME)
        if not np.array_equal(one_column(numbers), np.arange(len(table))):
            raise SpecError(f"{_FRAME}: expected 0 to {len(table) - 1} in this order, got others")


def _image_files(values: Any, name: str) -> list[bytes]:
    found: list[bytes | None] = [row["bytes"] for row in values.to_pylist()]
    files = [file for file in found if file is not None]
    if len(files) != len(found):
        raise SpecError(f"{name}: expected images in the Parquet file, got paths of files beside it")
    return files
