"""Public functions for datasets of other tools that have a format of their own."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.datasets.dataset import EpisodeDataset


def load_d4rl(
    path: str | os.PathLike[str], *, missing_final: str = "error", max_episode_steps: int | None = None
) -> EpisodeDataset:
    """Opens a D4RL file: `observations`, `actions`, `rewards`, `terminals` and `timeouts` of all episodes in HDF5.

    Episodes end at their flags; the rest after the last flag is an unfinished episode. With `next_observations` the
    last one of each episode is its final observation. `infos/...` become infos, and `metadata/...` becomes
    `dataset.metadata`. The file is read at once. Needs `pip install "headrace[minari]"`, but not D4RL.

    Args:
        path: of the file.
        missing_final: treatment of a file without `next_observations`. "error": it is refused. "drop": the last
            transition of each episode is left out, and the rest counts as truncated. "repeat": an episode that
            terminated keeps its last transition, followed by its last observation once more, whose value no learner
            uses; other episodes as with "drop". Old files give rewards at the end, for which "repeat" is right.
        max_episode_steps: the environment's limit, for files without `timeouts`: an episode is truncated after so many
            steps. It is not used where the file has `timeouts`.

    Raises:
        FileNotFoundError: the file does not exist.
        DatasetError: the file is not an HDF5 file, is damaged, or has arrays that are missing or do not fit; it has no
            `timeouts` and `max_episode_steps` is not given.
        ValueError: another value of `missing_final`, or `max_episode_steps` below 1.
        ImportError: h5py is not installed.

    >>> import tempfile, h5py
    >>> path = Path(tempfile.mkdtemp()) / "line.hdf5"
    >>> with h5py.File(path, "w") as file:
    ...     file["observations"] = [[0.0], [1.0], [0.0]]
    ...     file["next_observations"] = [[1.0], [2.0], [1.0]]
    ...     file["actions"] = [[1.0], [1.0], [1.0]]
    ...     file["rewards"] = [0.0, 1.0, 0.0]
    ...     file["terminals"] = [False, True, False]
    ...     file["timeouts"] = [False, False, True]
    >>> load_d4rl(path)[:]
    [Episode(2 steps, terminated, return 1), Episode(1 steps, truncated, return 0)]
    """
    _check_missing_final(missing_final, ("error", "drop", "repeat"))
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps: expected None or at least 1, got {max_episode_steps}")
    from headrace.datasets.foreign.d4rl import D4rlDataset

    return D4rlDataset(Path(path), missing_final, max_episode_steps)


def load_lerobot(path: str | os.PathLike[str], *, missing_final: str = "repeat") -> EpisodeDataset:
    """Opens a LeRobot dataset of the versions 2 and 3: `meta/info.json`, and Parquet files under `data`.

    `observation.state` becomes `observations["state"]`, `observation.images.top` `observations["images"]["top"]`, and
    `action` the actions. Images in the Parquet files are decoded: uint8 `[height, width, channels]`. Videos are not
    read; a warning in the log names them. All other columns, such as `task_index`, become infos. Without `next.reward`
    all rewards are 0, with a warning in the log. `metadata` is `meta/info.json` and `tasks`, a list of their texts. One
    episode at a time is read. Needs `pip install "headrace[parquet]"` (images: `headrace[minari]`), but not LeRobot.

    An episode has the rows of one `episode_index`. It terminates where `next.success` of its last frame is set or, in
    data without that column, `next.done`. Otherwise it is truncated.

    Args:
        path: of the dataset's folder.
        missing_final: treatment of the observation after the last frame, which LeRobot does not record. "repeat": an
            episode that terminates has its last observation once more, whose value no learner uses; of other episodes
            the last transition is left out. "drop": the last transition of each episode is left out, and the rest
            counts as truncated.

    Raises:
        FileNotFoundError: the folder or its `meta/info.json` does not exist.
        DatasetError: the data is damaged, has no actions, or no observations but videos; found here or when an episode
            is read.
        ValueError: another value of `missing_final`.
        ImportError: pyarrow or Pillow is missing for the data.

    >>> import json, tempfile, pyarrow, pyarrow.parquet
    >>> folder = Path(tempfile.mkdtemp())
    >>> features = {name: {"dtype": "float32", "shape": [1]} for name in ("observation.state", "action")}
    >>> (folder / "data/chunk-000").mkdir(parents=True), (folder / "meta").mkdir()
    (None, None)
    >>> (folder / "meta/info.json").write_text(json.dumps({"features": features})) > 0
    True
    >>> frames = {"observation.state": [0.0, 1.0], "action": [1.0, 1.0], "episode_index": [0, 0]}
    >>> frames |= {"next.reward": [0.0, 1.0], "next.done": [False, True]}
    >>> pyarrow.parquet.write_table(pyarrow.table(frames), folder / "data/chunk-000/file-000.parquet")
    >>> load_lerobot(folder)[:]
    [Episode(id=0, 2 steps, terminated, return 1)]
    """
    _check_missing_final(missing_final, ("repeat", "drop"))
    from headrace.datasets.foreign.lerobot import LeRobotDataset

    return LeRobotDataset(Path(path), missing_final)


def _check_missing_final(value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"missing_final: expected {expected}, got {value!r}")
