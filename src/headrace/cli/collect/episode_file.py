"""Writes the rows of a collector to an npz file of episodes, without holding them in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import trees
from headrace.closing import Closing
from headrace.datasets.npz.public import save_npz
from headrace.trajectories.episode import Episode

# Columns that are attributes of an episode. All others are its extras.
_PARTS = ("observation", "action", "reward", "terminated", "truncated", "next_observation", "episode_id", "t")


class EpisodeFile(Closing):
    """Rows of interleaved episodes, which become a dataset (`hr.datasets.load_npz`) when the file is closed.

    Rows go to temporary files in the same folder, one per column, so the dataset may be larger than memory. Episodes
    are written in the order in which they began. Episodes under way at the end are written too, neither terminated nor
    truncated. Images are compressed.

    Args:
        path: the npz file; its folder must exist. An existing file is replaced.
        metadata: the metadata of the dataset.

    >>> from headrace.datasets import load_npz
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with EpisodeFile(Path(folder) / "episodes.npz", {"environment": "line"}) as file:
    ...         file.append(
    ...             {
    ...                 "observation": np.array([0, 7, 1]), "next_observation": np.array([1, 8, 2]),
    ...                 "action": np.zeros(3), "reward": np.ones(3), "terminated": np.array([False, False, True]),
    ...                 "truncated": np.zeros(3, bool), "episode_id": np.array([4, 5, 4]), "t": np.array([0, 0, 1]),
    ...             }
    ...         )
    ...     [(episode.id, episode.observations.tolist()) for episode in load_npz(Path(folder) / "episodes.npz")]
    [(4, [0, 1, 2]), (5, [7, 8])]
    """

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self._path, self._metadata = path, metadata
        self._columns: dict[str, _Column] = {}
        self._node: trees.Node | None = None
        self._count = 0

    def append(self, rows: Mapping[str, Any]) -> None:
        """Adds rows; rows of one episode must come in order.

        Args:
            rows: columns, or trees of columns, `[k, ...]`, of a collector: `observation`, `action`, `reward`,
                `terminated`, `truncated`, `next_observation`, `episode_id`, `t`. All others become extras.
        """
        node = trees.compile_tree(dict(rows), _is_array)
        for leaf in trees.leaves(node):
            if leaf.path not in self._columns:
                self._columns[leaf.path] = _Column(self._path.parent, leaf.value)
            self._columns[leaf.path].append(leaf.value)
        self._node = self._node or node
        # Rows count only when all columns have them, because Ctrl-C may come in between.
        self._count += len(rows["episode_id"])

    def close(self) -> None:
        """Writes the dataset, completely or not at all; without rows there is none."""
        try:
            if self._node is not None and self._count:
                save_npz(
                    self._episodes(self._node),
                    self._path,
                    compressed=any(column.holds_images for column in self._columns.values()),
                    metadata=self._metadata,
                    overwrite=True,
                )
        finally:
            for column in self._columns.values():
                column.close()

    def _episodes(self, node: trees.Node) -> Iterator[Episode]:
        columns = {name: column.rows(self._count) for name, column in self._columns.items()}
        ids = np.asarray(columns["episode_id"])
        order = np.argsort(ids, kind="stable")
        begins = np.flatnonzero(np.diff(ids[order], prepend=ids[order[0]] - 1))
        episodes = np.split(order, begins[1:])
        # Sorted by their first rows, because the ids of episodes need not rise.
        for rows in sorted(episodes, key=lambda rows: int(rows[0])):
            tree = trees.build(node, {name: column[rows] for name, column in columns.items()})
            last = trees.map_leaves(lambda leaf: leaf[-1:], tree["next_observation"])
            yield Episode(
                _concatenated(tree["observation"], last),
                tree["action"],
                tree["reward"],
                tree["terminated"],
                tree["truncated"],
                extras={name: child for name, child in tree.items() if name not in _PARTS},
                id=int(ids[rows[0]]),
            )


def _is_array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def _concatenated(first: Any, second: Any) -> Any:
    """Returns two trees of arrays as one, with the rows of the second behind those of the first."""
    node, other = (trees.compile_tree(tree, _is_array) for tree in (first, second))
    later = {leaf.path: leaf.value for leaf in trees.leaves(other)}
    return trees.build(
        node, {leaf.path: np.concatenate([leaf.value, later[leaf.path]]) for leaf in trees.leaves(node)}
    )


class _Column:
    """The rows of one column in a temporary file without a name."""

    def __init__(self, folder: Path, example: NDArray[Any]) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `close`
        self._shape, self._dtype = example.shape[1:], example.dtype

    @property
    def holds_images(self) -> bool:
        """True if a row is one image or several. Compression saves much of images, and little of other numbers."""
        return bool(self._dtype == np.uint8) and len(self._shape) >= 2

    def append(self, values: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(values).data)

    def rows(self, count: int) -> NDArray[Any]:
        """Returns the first `count` rows, mapped; zeros where a row has no byte, because nothing can be mapped then."""
        self._file.flush()
        shape = (count, *self._shape)
        if not count * self._dtype.itemsize * int(np.prod(self._shape)):
            return np.zeros(shape, self._dtype)
        return np.memmap(self._file, self._dtype, "r", shape=shape)

    def close(self) -> None:
        self._file.close()
