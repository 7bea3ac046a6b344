"""Checks of everything that an environment returns, at each reset and step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from headrace.checks import shown
from headrace.cli.doctor.report import Report
from headrace.envs.columns import EnvironmentColumns
from headrace.errors import SpecError


class Watch:
    """Looks at observations, rewards, flags and infos.

    Args:
        report: gets the findings.
        observation_space, action_space: of one environment.
        leading: axes before those of the space: () or (n,).

    Raises:
        SpecError: a space whose elements have no fixed shape.
    """

    def __init__(
        self, report: Report, observation_space: Any, action_space: Any, leading: tuple[int, ...] = ()
    ) -> None:
        self._report = report
        self.columns = EnvironmentColumns(observation_space, action_space)
        self._leading = leading
        self._space_fix = _space_fix(observation_space)
        self._bounds = dict(_bounds(observation_space, "observation"))
        # The arrays that came last, and what they held.
        self._held: dict[str, tuple[Any, Any]] = {}
        self._keys: list[frozenset[str]] = []

    def observation(self, observation: Any, place: str) -> None:
        """Checks an observation; `place` says when it came."""
        self._check_held(place)
        report = self._report
        report.calls += 1
        try:
            leaves = self.columns.observation.flatten({"observation": observation})
            self.columns.check_observation(observation, self._leading)
        except SpecError as error:
            report.error("observation", f"{place}: {error}", self._space_fix)
            self._held = {}
            return
        for name, leaf in leaves.items():
            self._check_leaf(name, np.asarray(leaf), place)
        self._held = {name: (leaf, np.array(leaf)) for name, leaf in leaves.items()}

    def _check_leaf(self, name: str, leaf: NDArray[Any], place: str) -> None:
        report, wanted = self._report, self.columns.observed.columns[name].dtype
        if leaf.dtype != wanted and leaf.dtype.kind in "fc":
            report.warn(
                "dtype",
                f"{place}: {name} is {leaf.dtype}, the space says {wanted}: it is cast at each step",
                f"Return it in the space's dtype: observation.astype(np.{wanted})",
            )
        if leaf.dtype.kind == "f" and np.isnan(leaf).any():
            report.error(
                "nan",
                f"{place}: {name} has {int(np.isnan(leaf).sum())} NaN",
                "Look for a division by zero or a simulation that left its range, and end the episode there.",
            )
            return
        low, high = self._bounds[name]
        outside = (leaf < low) | (leaf > high)
        if outside.any():
            value = leaf[outside].flat[0]
            report.warn(
                "bounds",
                f"{place}: {name} has {shown(value)}, outside of the bounds of its space",
                "Widen the bounds of the space (np.inf where there are none), or clip the observation.",
            )

    def _check_held(self, place: str) -> None:
        for name, (leaf, copy) in self._held.items():
            if not np.array_equal(leaf, copy, equal_nan=copy.dtype.kind == "f"):
                self._report.warn(
                    "aliasing",
                    f"{place}: the array of {name} that was returned before has changed: the environment writes into "
                    "an array that it has handed out. Headrace copies at once; a list of observations would hold the "
                    "newest one again and again",
                    "Return a copy: return self._state.copy(), reward, terminated, truncated, info",
                )

    def outcome(self, reward: Any, terminated: Any, truncated: Any, place: str) -> None:
        """Checks reward and flags of a step."""
        try:
            self.columns.check_outcome(reward, terminated, truncated, self._leading)
        except SpecError as error:
            self._report.error(
                "outcome",
                f"{place}: {error}",
                "Return plain numbers: float(reward), bool(terminated), bool(truncated)",
            )
            return
        if not np.isfinite(np.asarray(reward, np.float64)).all():
            self._report.error(
                "reward",
                f"{place}: the reward is {shown(reward)}",
                "Return a finite number; one NaN ruins the weights of a network.",
            )

    def info(self, info: Any, place: str) -> None:
        """Checks an info."""
        if not isinstance(info, Mapping):
            self._report.error(
                "info",
                f"{place}: expected a dict, got {type(info).__name__}",
                "Return {} where there is none.",
            )
            return
        self._keys.append(frozenset(map(str, info)))

    def finish(self) -> None:
        """Adds what only the whole shows, and that the other checks found nothing."""
        report = self._report
        always = frozenset.intersection(*self._keys) if self._keys else frozenset()
        changing = frozenset().union(*self._keys) - always
        if changing:
            report.warn(
                "info keys",
                f"some infos lack {', '.join(sorted(changing))}: info_columns can keep only entries that come with "
                "every reset and step",
                "Always give them, with zeros where they do not apply; or do not name them in info_columns.",
            )
        for check, text in (
            ("observation", "all observations have the shapes and dtypes of the space"),
            ("dtype", "no casts are needed"),
            ("nan", "no NaN"),
            ("bounds", "all observations are inside the bounds of the space"),
            ("outcome", "rewards are numbers, flags are bools"),
            ("reward", "all rewards are finite"),
            ("aliasing", "each observation has an array of its own"),
            ("info", "all infos are dicts"),
            ("info keys", f"always the same: {', '.join(sorted(always)) or 'none'}"),
        ):
            report.ok(check, text)


def _space_fix(space: Any) -> str:
    """Returns the advice for an observation that is not an element of the space."""
    if isinstance(space, spaces.Dict):
        like = "gymnasium.spaces.Dict({name: gymnasium.spaces.Box(low, high, shape=array.shape, dtype=array.dtype)})"
    elif isinstance(space, spaces.Tuple):
        like = (
            "gymnasium.spaces.Tuple([gymnasium.spaces.Box(low, high, shape=array.shape, dtype=array.dtype)])"
        )
    else:
        like = "gymnasium.spaces.Box(low, high, shape=observation.shape, dtype=observation.dtype)"
    return f"Return what the space says, or change the space: self.observation_space = {like}"


def _bounds(space: Any, path: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yields the lower and the upper bounds of each leaf."""
    if isinstance(space, spaces.Dict):
        for name, child in space.spaces.items():
            yield from _bounds(child, f"{path}/{name}")
    elif isinstance(space, spaces.Tuple):
        for i, child in enumerate(space.spaces):
            yield from _bounds(child, f"{path}/{i}")
    elif isinstance(space, spaces.Discrete):
        yield path, (space.start, space.start + space.n - 1)
    elif isinstance(space, spaces.MultiDiscrete):
        yield path, (space.start, space.start + space.nvec - 1)
    elif isinstance(space, spaces.MultiBinary):
        yield path, (0, 1)
    else:
        yield path, (space.low, space.high)
