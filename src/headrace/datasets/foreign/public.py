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
    `dataset.metadata`. All arrays are read into memory at once. Needs `pip install "headrace[minari]"`, but not D4RL.

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


def _check_missing_final(value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        expected = " or ".join(map(repr, choices))
        raise ValueError(f"missing_final: expected {expected}, got {value!r}")
