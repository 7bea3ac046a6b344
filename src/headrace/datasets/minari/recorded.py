"""From what a Minari file says about an episode to an `hr.Episode`."""

# Rules: datasets K11

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode, agreed_steps

Array = np.ndarray[Any, Any]

# What libraries raise on damaged files.
DAMAGE = (
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The parts of an episode as they lie in a file, unchecked.

    Attributes:
        reset: `seed`, `options` and `id` as `hr.Episode` takes them.
    """

    observations: Any
    actions: Any
    rewards: Array
    terminations: Array
    truncations: Array
    infos: Mapping[str, Any]
    extras: Mapping[str, Any] = field(default_factory=dict)
    reset: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def damage_named(file: Path, *places: str) -> Iterator[None]:
    """Turns what is raised on damaged files into DatasetError with the file, the episode and the field."""
    try:
        yield
    except (DatasetError, ImportError):
        raise
    except DAMAGE as error:
        where = ": ".join(map(str, (file, *places)))
        # The text of a KeyError is only the key.
        text = f"missing {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DatasetError(f"{where}: {text}") from error


def episode_of(recorded: Recorded, file: Path, name: str, missing_final: str) -> Episode:
    """The episode, checked.

    Args:
        recorded: its parts.
        file: for errors.
        name: of the episode in its file, for errors.
        missing_final: what to do with T observations instead of T+1: "error" or "drop".

    Raises:
        DatasetError: no episode, or one without its last observation where that is an error.
    """
    with damage_named(file, name):
        steps = _steps(recorded)
        if steps and _rows(recorded.observations) == {steps}:
            if missing_final == "error":
                raise DatasetError(
                    f"{file}: {name}: observations: expected {steps + 1} rows, got {steps}: the last observation is "
                    'missing; missing_final="drop" leaves out the last transition'
                )
            recorded = _without_last_transition(recorded, steps)
        return Episode(
            recorded.observations,
            recorded.actions,
            recorded.rewards,
            recorded.terminations,
            recorded.truncations,
            recorded.infos,
            recorded.extras,
            **recorded.reset,
        )


def one_column(array: Array) -> Array:
    """Rewards and flags `[T]`; Minari takes them as `[T, 1]` too."""
    return array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array


def _steps(recorded: Recorded) -> int:
    """How many transitions most of the parts have; 0 where a part that has one row a step is one value."""
    columns = (recorded.rewards, recorded.terminations, recorded.truncations)
    if not all(map(np.ndim, columns)):
        return 0
    return agreed_steps(_rows(recorded.observations), _rows(recorded.actions), *map(len, columns))


def _without_last_transition(recorded: Recorded, steps: int) -> Recorded:
    """The observation of the last transition becomes the final one of the rest."""
    if steps == 1:
        raise ValueError("its one transition has no next observation: nothing is left without it")
    terminations, truncations = (
        np.array(flags[:-1]) for flags in (recorded.terminations, recorded.truncations)
    )
    if not (terminations[-1] or truncations[-1]):
        truncations[-1] = True
    return replace(
        recorded,
        actions=_each(recorded.actions, lambda array: array[:-1]),
        rewards=recorded.rewards[:-1],
        terminations=terminations,
        truncations=truncations,
        # Infos of as many rows as there are observations belong to them, and all of these stay.
        infos=_each(recorded.infos, lambda array: array[:steps]),
        extras=_each(recorded.extras, lambda array: array[:-1]),
    )


def _rows(tree: Any) -> set[int]:
    if isinstance(tree, Mapping | tuple):
        children = tree.values() if isinstance(tree, Mapping) else tree
        return set().union(*map(_rows, children))
    return {len(tree)} if np.ndim(tree) else set()


def _each(tree: Any, change: Callable[[Array], Array]) -> Any:
    if isinstance(tree, Mapping):
        return {key: _each(child, change) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_each(child, change) for child in tree)
    return change(tree)
