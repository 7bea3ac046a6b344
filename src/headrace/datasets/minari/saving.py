"""Episodes into the `data` folder of a Minari dataset."""

# Rules: datasets K5 to K10

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec

from headrace import trees
from headrace.datasets.exporting.structure import Structure
from headrace.datasets.minari.env_spec import spaces_of
from headrace.datasets.minari.hdf5.attributes import episode_attributes
from headrace.datasets.minari.hdf5.layout import Layout, layout_of
from headrace.datasets.minari.hdf5.writing import MAIN_FILE, Hdf5Writer, check_written
from headrace.datasets.minari.metadata import own_metadata
from headrace.datasets.minari.space_checks import SpaceCheck
from headrace.datasets.minari.space_inference import SpaceInference
from headrace.datasets.minari.spaces import space_to_json
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GivenSpaces:
    """The spaces that the data must fit; None is inferred from it.

    Attributes:
        observations: of an argument or of the environment.
        actions: as `observations`.
    """

    observations: Space[Any] | None
    actions: Space[Any] | None

    @classmethod
    def of(cls, observations: Any, actions: Any, env_spec: EnvSpec | None) -> GivenSpaces:
        """The arguments, completed from the environment where it can be made.

        Raises:
            TypeError: no gymnasium spaces.
            ValueError: spaces that Minari has no form for.
        """
        for name, space in (("observation_space", observations), ("action_space", actions)):
            if space is not None and not isinstance(space, Space):
                raise TypeError(f"{name}: expected a gymnasium space, got {type(space).__name__}")
        if env_spec is not None and (observations is None or actions is None):
            made = spaces_of(env_spec) or (None, None)
            observations = made[0] if observations is None else observations
            actions = made[1] if actions is None else actions
        for name, space in (("observation_space", observations), ("action_space", actions)):
            if space is not None:
                space_to_json(space, name)
        return cls(observations, actions)


def write_episodes(
    folder: Path,
    episodes: Iterator[Episode],
    given: GivenSpaces,
    compression: str | None,
    one_more: Callable[[], None],
) -> dict[str, Any]:
    """Write the file of the episodes, and check it.

    Args:
        folder: where it goes.
        episodes: read once, one at a time.
        given: the spaces that they must fit.
        compression: "gzip" or None.
        one_more: called after each episode.

    Returns:
        What the metadata says of them.

    Raises:
        ValueError: there are none.
        SpecError: one that is unlike the first, or does not fit a space, or holds what a Minari dataset does not.
    """
    first = next(episodes, None)
    if first is None:
        raise ValueError("source: expected at least one episode, got none; nothing was written")
    structure = Structure.of(first)
    try:
        layout = layout_of(structure)
        observations, actions = _fits(structure, layout, given)
    except SpecError as error:
        raise SpecError(f"episode 0: {error}") from error
    total_episodes = total_steps = 0
    with Hdf5Writer(folder / MAIN_FILE, layout, compression) as writer:
        for index, episode in enumerate(itertools.chain([first], episodes)):
            arrays = structure.check(index, episode)
            arrays["truncations"] = _ended(arrays["terminations"], arrays["truncations"])
            observations.see(index, arrays)
            actions.see(index, arrays)
            writer.write(index, arrays, episode_attributes(index, episode))
            total_episodes, total_steps = index + 1, total_steps + len(episode)
            one_more()
    check_written(folder / MAIN_FILE, layout, total_steps, total_episodes)
    return {
        "total_episodes": total_episodes,
        "total_steps": total_steps,
        "observation_space": space_to_json(observations.space(), "observation_space"),
        "action_space": space_to_json(actions.space(), "action_space"),
        **own_metadata(structure, total_episodes),
    }


def _fits(
    structure: Structure, layout: Layout, given: GivenSpaces
) -> tuple[SpaceCheck | SpaceInference, SpaceCheck | SpaceInference]:
    def fit(name: str, space: Space[Any] | None, node: trees.Node) -> SpaceCheck | SpaceInference:
        if space is None:
            return SpaceInference(node, structure.columns)
        return SpaceCheck(name, space, node, structure.columns)

    return (
        fit("observation_space", given.observations, layout.observations),
        fit("action_space", given.actions, layout.actions),
    )


def _ended(terminations: Array, truncations: Array) -> Array:
    """An episode without an end is cut off at its last step, as by Minari's collector: readers expect one."""
    if terminations[-1] or truncations[-1]:
        return truncations
    ended = truncations.copy()
    ended[-1] = True
    return ended
