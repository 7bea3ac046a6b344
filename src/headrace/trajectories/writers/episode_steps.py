"""Calls that add a recorded episode to a step writer."""

# Rules: trajectories A8

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.errors import SpecError
from headrace.spec import Signature, check_array
from headrace.trajectories.columns.step_columns import StepColumns, TreeColumns
from headrace.trajectories.episode import Episode


class EpisodeSteps:
    """Checks the whole episode, then gives the arguments of each `add`.

    Args:
        signature: of the replay.
        columns: of the writer.
        episode: to be added; its infos are not stored.
        with_observation: the extras that come with observations; None before the first call.
        longest: largest number of transitions; None for no limit.

    Raises:
        TypeError: no episode.
        ValueError: too long.
        SpecError: something does not fit, with its path.

    Attributes:
        first: the arguments of `add_first`.
    """

    def __init__(
        self,
        signature: Signature,
        columns: StepColumns,
        episode: Episode,
        with_observation: tuple[str, ...] | None,
        longest: int | None,
    ) -> None:
        if not isinstance(episode, Episode):
            raise TypeError(f"episode: expected an Episode, got {type(episode).__name__}")
        steps = len(episode)
        if longest is not None and steps > longest:
            raise ValueError(f"episode: expected at most max_length={longest} transitions, got {steps}")
        tree = signature.tree
        self._episode = episode
        self._observation = TreeColumns(tree["observation"], "observation", steps + 1)
        self._action = TreeColumns(tree["action"], "action", steps)
        self._observations = self._observation.read_columns(episode.observations)
        self._actions = self._action.read_columns(episode.actions)
        self._rewards = check_array(episode.rewards, columns.specs["reward"], "reward", (steps,))
        self._extras = self._read_extras(columns, steps, with_observation)
        self.first = (self._observation.row(self._observations, 0), self._extras_at(-1))

    def _read_extras(
        self, columns: StepColumns, steps: int, with_observation: tuple[str, ...] | None
    ) -> dict[str, tuple[Any, int]]:
        """Maps each column to its array and to the number of rows beyond the last action."""
        found: dict[str, Any] = {}
        if self._episode.extras is not None:
            columns.collect_extras(self._episode.extras, found)
        more = {name: len(value) - steps for name, value in found.items()}
        here = tuple(name for name in columns.extras if more.get(name) == 1)
        if set(found) != set(columns.extras) or (
            with_observation is not None and set(here) != set(with_observation)
        ):
            wanted = ", ".join(columns.extras) or "none"
            beside = (
                ""
                if with_observation is None
                else f"; with observations: {', '.join(with_observation) or 'none'}"
            )
            raise SpecError(f"extras: expected {wanted}{beside}, got {', '.join(found) or 'none'}")
        return {
            name: (check_array(value, columns.specs[name], name, (steps + more[name],)), more[name])
            for name, value in found.items()
        }

    def _extras_at(self, row: int) -> Any:
        """Returns the extras of action `row` and of the observation after it."""
        found = {name: array[row + more] for name, (array, more) in self._extras.items() if more or row >= 0}
        if "extras" in found:
            return found["extras"]
        return {name.removeprefix("extras/"): value for name, value in found.items()} or None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        episode = self._episode
        for row in range(len(episode)):
            yield (
                self._action.row(self._actions, row),
                self._rewards[row],
                episode.terminations[row],
                episode.truncations[row],
                self._observation.row(self._observations, row + 1),
                self._extras_at(row),
            )
