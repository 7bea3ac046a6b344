"""Episodes from the parts that a Minari file has of them."""

# Rules: datasets K11

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.datasets.exporting.structure import Array
from headrace.errors import SpecError
from headrace.trajectories.episode import Episode, agreed_steps
from headrace.trees import compile_tree, leaves, map_leaves

_SINGLE = ("rewards", "terminations", "truncations")

# The arguments of `Episode` as they are in a file, unchecked.
Recorded = dict[str, Any]


def episode_of(recorded: Recorded, missing_final: str) -> Episode:
    """Returns the episode of its parts, checked.

    Args:
        recorded: arguments of `Episode`.
        missing_final: treatment of T observations instead of T+1: "error" or "drop".

    Raises:
        SpecError: the parts do not make an episode, or the last observation is missing and `missing_final` is "error".
    """
    steps = _steps(recorded)
    if steps and _rows(recorded["observations"]) == {steps}:
        if missing_final == "error":
            raise SpecError(
                f"observations: expected {steps + 1} rows, got {steps}: the last observation is missing; "
                'missing_final="drop" leaves out the last transition'
            )
        recorded = _without_last_transition(recorded, steps)
    return Episode(**recorded)


def one_column(array: Array) -> Array:
    """Returns rewards or flags as `[T]`; Minari accepts `[T, 1]` too."""
    return array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array


def _steps(recorded: Recorded) -> int:
    """Returns the number of transitions in most of the parts; 0 if rewards or flags are one value."""
    columns = [recorded[name] for name in _SINGLE]
    if not all(map(np.ndim, columns)):
        return 0
    return agreed_steps(_rows(recorded["observations"]), _rows(recorded["actions"]), *map(len, columns))


def _without_last_transition(recorded: Recorded, steps: int) -> Recorded:
    """Leaves out the last transition, whose observation becomes the final one."""
    if steps == 1:
        raise SpecError("its one transition has no next observation: nothing is left without it")
    shorter = {
        name: map_leaves(lambda array: array[:-1], recorded[name])
        for name in ("actions", *_SINGLE, "extras")
        if name in recorded
    }
    # Infos with a row for each observation keep all rows.
    shorter["infos"] = map_leaves(lambda array: array[:steps], recorded["infos"])
    shorter["truncations"] = truncations = np.array(shorter["truncations"])
    if not (shorter["terminations"][-1] or truncations[-1]):
        truncations[-1] = True
    return {**recorded, **shorter}


def _rows(tree: Any) -> set[int]:
    """Returns the numbers of rows of all arrays in a tree."""
    node = compile_tree(tree, lambda value: not isinstance(value, Mapping | tuple))
    return {len(leaf.value) for leaf in leaves(node) if np.ndim(leaf.value)}
