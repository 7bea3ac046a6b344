"""Episodes into the folder of a Minari dataset."""

# Rules: datasets K5 to K10

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from headrace.datasets.exporting.structure import Array, Structure
from headrace.datasets.minari.env_spec import spaces_of
from headrace.datasets.minari.hdf5.attributes import episode_attributes
from headrace.datasets.minari.hdf5.layout import layout_of
from headrace.datasets.minari.hdf5.writing import MAIN_FILE, Hdf5Writer, check_written
from headrace.datasets.minari.ids import DATA_FOLDER
from headrace.datasets.minari.metadata import new_metadata, read_metadata, write_metadata
from headrace.datasets.minari.space_checks import SpaceCheck
from headrace.datasets.minari.space_inference import SpaceInference
from headrace.datasets.minari.spaces import space_to_json
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

_PARTS = {"observation_space": "observations", "action_space": "actions"}

Spaces = Mapping[str, Space[Any] | None]


def checked_spaces(observation_space: Any, action_space: Any, env_spec: EnvSpec | None) -> Spaces:
    """Returns the given spaces by argument; a missing one is that of the environment, or None if it cannot be made.

    Raises:
        TypeError: not a gymnasium space.
        ValueError: Minari has no form for a space.
    """
    spaces = {"observation_space": observation_space, "action_space": action_space}
    for name, space in spaces.items():
        if not (space is None or isinstance(space, Space)):
            raise TypeError(f"{name}: expected a gymnasium space, got {type(space).__name__}")
    if env_spec is not None and None in spaces.values():
        made = dict(zip(spaces, spaces_of(env_spec) or (None, None), strict=True))
        spaces = {name: made[name] if space is None else space for name, space in spaces.items()}
    for name, space in spaces.items():
        if space is not None:
            space_to_json(space, name)
    return spaces


class MinariWriter:
    """Writes episodes to the folder of a Minari dataset.

    Args:
        folder: of the dataset; it must not exist.
        dataset_id: see `save_minari`.
        structure: of all episodes.
        spaces: that the episodes must fit, by argument; None is inferred from them.
        compression: "gzip" or None.
        described: further keys of the metadata.

    Raises:
        SpecError: a Minari dataset cannot hold the structure, or a space does not.
    """

    def __init__(
        self,
        folder: Path,
        dataset_id: str,
        structure: Structure,
        spaces: Spaces,
        compression: str | None,
        described: Mapping[str, Any],
    ) -> None:
        self._folder = folder / DATA_FOLDER
        self._folder.mkdir(parents=True)
        self._dataset_id = dataset_id
        self._structure = structure
        self._described = described
        self._episodes = self._steps = 0
        try:
            self._layout = layout_of(structure)
            self._spaces = {name: _space_of(structure, name, space) for name, space in spaces.items()}
        except SpecError as error:
            raise SpecError(f"episode 0: {error}") from error
        self._file = Hdf5Writer(self._folder / MAIN_FILE, self._layout, compression)

    def append(self, index: int, episode: Episode, arrays: dict[str, Array]) -> None:
        """Writes the next episode.

        Raises:
            SpecError: the episode does not fit a space, or has a value that HDF5 cannot hold.
        """
        arrays["truncations"] = _with_end(arrays["terminations"], arrays["truncations"])
        for space in self._spaces.values():
            space.see(index, arrays)
        self._file.write(index, arrays, episode_attributes(index, episode))
        self._episodes, self._steps = index + 1, self._steps + len(episode)

    def finish(self) -> None:
        """Writes the metadata, and verifies the dataset.

        Raises:
            DatasetError: the file holds other episodes.
        """
        self._file.close()
        check_written(self._folder / MAIN_FILE, self._layout, self._steps, self._episodes)
        spaces = {name: space_to_json(space.space(), name) for name, space in self._spaces.items()}
        fixed = new_metadata(self._dataset_id, self._structure, self._episodes)
        write_metadata(self._folder, {**fixed, **self._described, **spaces, "total_steps": self._steps})
        read_metadata(self._folder)

    def close(self) -> None:
        """Closes the file of the episodes."""
        self._file.close()


def _space_of(structure: Structure, name: str, space: Space[Any] | None) -> SpaceCheck | SpaceInference:
    root = structure.roots[_PARTS[name]]
    return SpaceInference(root) if space is None else SpaceCheck(name, space, root)


def _with_end(terminations: Array, truncations: Array) -> Array:
    """Returns truncations with a flag at the last step of an unfinished episode: Minari's readers expect it."""
    if terminations[-1] or truncations[-1]:
        return truncations
    ended = truncations.copy()
    ended[-1] = True
    return ended
