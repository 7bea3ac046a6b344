"""Columns of an environment: their signatures, and the conversion of nested observations to columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.envs.protocol import Columns
from headrace.errors import SpecError
from headrace.kernels.row_copy import write_row
from headrace.spec import BARE, ArraySpec, Signature, check_array

STEP_COLUMNS = frozenset(
    (
        "observation",
        "action",
        "reward",
        "terminated",
        "truncated",
        "next_observation",
        "mask",
        "episode_id",
        "t",
        "policy_version",
    )
)
"""Names of the columns that every collected step has."""

# Used instead of a step's number.
AT_RESET = -1


class EnvironmentColumns:
    """The signatures of an environment's data, made once from its spaces.

    Args:
        observation_space, action_space: gymnasium spaces of one environment.
        info_columns: entries of `info` to keep, and their specs.

    Raises:
        SpecError: a space without fixed shape; an info column whose name is used already.

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> columns = EnvironmentColumns(Dict(arm=Box(-1, 1, (3,)), eye=Box(0, 255, (4, 4), "uint8")), Discrete(2))
    >>> list(columns.observed.columns), list(columns.acted.columns)
    (['observation/arm', 'observation/eye'], ['action'])
    >>> columns.leaf_keys
    (('observation/arm', ('arm',)), ('observation/eye', ('eye',)))
    """

    def __init__(
        self, observation_space: Any, action_space: Any, info_columns: Mapping[str, ArraySpec] | None = None
    ) -> None:
        self.info = dict(info_columns or {})
        check_info_columns(self.info)
        space_tree = _space_tree("observation_space", observation_space)
        self.observation = Signature({"observation": space_tree})
        self.observed = Signature({"observation": space_tree, **self.info})
        self.acted = Signature({"action": _space_tree("action_space", action_space)})
        self.action_is_bare = tuple(self.acted.columns) == ("action",)
        action = self.acted.columns.get("action")
        # An element of Box(shape=()) is an array of no axes, no scalar.
        self.actions_are_rows = action is not None and bool(action.shape or action.dtype.kind != "f")
        self.leaf_keys = tuple(_leaf_keys(space_tree, "observation", ()))
        self.observation_is_bare = tuple(self.observation.columns) == ("observation",)
        self.sizes = {name: math.prod(spec.shape) for name, spec in self.observed.columns.items()}

    def action_tree(self, actions: Columns) -> Any:
        """Returns the tree of arrays `[n, ...]` that a vector environment takes as its actions."""
        return actions["action"] if self.action_is_bare else self.acted.unflatten(actions)["action"]

    def action_elements(self, actions: Columns) -> Sequence[Any] | NDArray[Any]:
        """Returns one action, an element of the action space, for each row.

        >>> from gymnasium.spaces import Discrete
        >>> list(EnvironmentColumns(Discrete(3), Discrete(3)).action_elements({"action": np.array([1, 2])}))
        [np.int64(1), np.int64(2)]
        """
        if self.actions_are_rows:
            return actions["action"]
        if self.action_is_bare:
            return [row.reshape(()) for row in actions["action"].reshape(-1, 1)]
        # With the ellipsis a float of no axes stays an array; scalars are for Discrete spaces.
        rows = [
            {name: c[i, ...] if c.dtype.kind == "f" else c[i] for name, c in actions.items()}
            for i in range(len(next(iter(actions.values()))))
        ]
        return [self.acted.unflatten(columns)["action"] for columns in rows]

    def write_observation(self, observation: Any, out: Columns, row: int, step_rows: int, where: str) -> None:
        """Writes one observation into a row of columns.

        Args:
            observation: a tree as the space has it.
            out: columns.
            row: of the columns.
            step_rows: number of rows that a step of all environments writes.
            where: begins the message of an error.

        Raises:
            SpecError: an observation that does not fit the space: NumPy would broadcast a leaf of another size, and
                drop the fractions of floats in a column of integers.
        """
        specs = self.observed.columns
        try:
            for name, keys in self.leaf_keys:
                leaf = observation
                for key in keys:
                    leaf = leaf[key]
                if write_row(out[name], row, leaf, step_rows):
                    continue
                if getattr(leaf, "size", 1) != self.sizes[name] or not _is_stored_as_it_is(leaf, specs[name]):
                    leaf = check_array(leaf, specs[name], f"{where}: {name}")
                out[name][row] = leaf
        except (LookupError, TypeError, ValueError) as error:
            raise self._refusal([observation], where, error) from error

    def stack_observations(self, observations: Sequence[Any], where: str) -> dict[str, NDArray[Any]]:
        """Returns observations, one below the other, as columns.

        Args:
            observations: trees as the space has them.
            where: begins the message of an error.

        Raises:
            SpecError: an observation that does not fit the space.
        """
        found = {}
        try:
            for name, keys in self.leaf_keys:
                leaves = observations
                for key in keys:
                    leaves = [leaf[key] for leaf in leaves]
                spec = self.observed.columns[name]
                array = _stacked(leaves, spec.shape)
                if array.shape[1:] != spec.shape or not _is_stored_as_it_is(array, spec):
                    array = check_array(array, spec, f"{where}: {name}", (len(leaves),))
                found[name] = array
        except (LookupError, TypeError, ValueError) as error:
            raise self._refusal(observations, where, error) from error
        return found

    def _refusal(self, observations: Sequence[Any], where: str, error: Exception) -> SpecError:
        """Returns the error for the first of some observations that does not fit the space."""
        for observation in observations:
            try:
                self.check_observation(observation)
            except SpecError as refused:
                return SpecError(f"{where}: {refused}")
        return SpecError(f"{where}: observation: {error}")

    def check_observation(self, observation: Any, leading: tuple[int, ...] = ()) -> None:
        """Checks one observation (or a batch of them) against the space.

        Raises:
            SpecError: with the path.
        """
        self.observation.validate({"observation": observation}, leading)

    def check_outcome(
        self, reward: Any, terminated: Any, truncated: Any, leading: tuple[int, ...] = ()
    ) -> None:
        """Checks reward and flags.

        Raises:
            SpecError: with the path.
        """
        check_array(reward, _REWARD, "reward", leading)
        check_array(terminated, _FLAG, "terminated", leading)
        check_array(truncated, _FLAG, "truncated", leading)

    def missing_info(self, name: str, info: Mapping[str, Any], step: int) -> SpecError:
        """Returns the error for a missing info column.

        Args:
            name: of the column.
            info: the info received.
            step: the number of the step; AT_RESET.
        """
        place = "reset" if step == AT_RESET else f"step {step}"
        return SpecError(
            f"{name}: expected {self.info[name]} in info at {place} (info_columns: at each reset and step), "
            f"got {', '.join(map(str, info)) or 'an empty info'}"
        )


_REWARD = ArraySpec((), np.float32)
_FLAG = ArraySpec((), np.bool_)


def _space_tree(name: str, space: Any) -> Any:
    """Returns the tree of specs of a space; errors begin with its name."""
    try:
        signature = Signature.of_space(space)
    except SpecError as error:
        raise SpecError(f"{name}: {str(error).removeprefix(f'{BARE}: ')}") from error
    if not signature.columns:
        raise SpecError(f"{name}: expected a space with at least one array, got {space}")
    return signature.tree


def check_info_columns(info: Mapping[str, ArraySpec]) -> None:
    """Refuses names that are used already, and values that are not a mapping of names to specs.

    Raises:
        TypeError, SpecError: refused; the message has the name.
    """
    if not isinstance(info, Mapping):
        raise TypeError(
            f"info_columns: expected a mapping of names to hr.ArraySpec, got {type(info).__name__}"
        )
    for name, spec in info.items():
        if not isinstance(spec, ArraySpec):
            raise SpecError(f"info_columns: {name}: expected an ArraySpec, got {type(spec).__name__}")
        if name in STEP_COLUMNS:
            raise SpecError(f"info_columns: {name}: expected a name that no column has yet")


def _leaf_keys(tree: Any, path: str, keys: tuple[Any, ...]) -> list[tuple[str, tuple[Any, ...]]]:
    if isinstance(tree, ArraySpec):
        return [(path, keys)]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [leaf for key, child in items for leaf in _leaf_keys(child, f"{path}/{key}", (*keys, key))]


def new_columns(signature: Signature, num_envs: int) -> dict[str, NDArray[Any]]:
    """Returns arrays `[n, ...]` of zeros for `VectorStepper.reset` and `step` to write into.

    >>> new_columns(Signature({"observation": ArraySpec(3, "float32")}), 2)["observation"].shape
    (2, 3)
    """
    return {name: np.zeros((num_envs, *spec.shape), spec.dtype) for name, spec in signature.columns.items()}


def _is_stored_as_it_is(leaf: Any, spec: ArraySpec) -> bool:
    """Whether a column takes a leaf of the right size without a check of its values: floats may be rounded."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        # NumPy refuses a Python int that is too large for its column.
        return type(leaf) is int
    return bool(dtype == spec.dtype) or getattr(dtype, "kind", None) == spec.dtype.kind == "f"


def _stacked(leaves: Sequence[Any], wanted: tuple[int, ...]) -> NDArray[Any]:
    """Does `np.stack`, which makes a view of each array, in half the time for arrays of the wanted shape."""
    are_arrays = set(map(type, leaves)) == {np.ndarray}
    if wanted and are_arrays and [leaf.shape for leaf in leaves].count(wanted) == len(leaves):
        return np.concatenate(leaves).reshape(len(leaves), *wanted)
    return np.stack(leaves)
