"""Checked columns of a step writer's arguments: observations, actions, rewards, flags and extras.

Extras that `add_first` names go with the observation: every row has one, the final row too. The others go with
the action.
"""

# Rules: trajectories A5

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature, as_array, check_array
from headrace.trajectories.columns.leaf_reader import LeafCheck, checked, reader
from headrace.trees import build, compile_tree, leaves

_SCALARS = ("reward", "terminated", "truncated")
_REQUIRED = ("observation", "action", *_SCALARS)
Array = np.ndarray[Any, Any]
Rows = np.ndarray[Any, np.dtype[np.int64]]
Columns = dict[str, Any]


class TreeColumns:
    """One part of a step, read into the columns that it has.

    Args:
        tree: of `ArraySpec`.
        path: the part's name.
        lanes: size of an axis that every leaf has before its own; None for none.

    Attributes:
        lanes: as above.
        specs: of the columns.
        names: of the columns.
        take: takes the part apart into leaves, in that order.
        checks: the check of each leaf.
    """

    def __init__(self, tree: Any, path: str, lanes: int | None) -> None:
        self._node = compile_tree(tree, lambda each: isinstance(each, ArraySpec), path)
        self.lanes = lanes
        self.specs: dict[str, ArraySpec] = {leaf.path: leaf.value for leaf in leaves(self._node)}
        self.names = tuple(self.specs)
        self.take = reader(self._node)
        self.checks = [_check(name, spec, lanes) for name, spec in self.specs.items()]

    def read_columns(self, value: Any, rows: Rows | None = None) -> Columns:
        """Returns the columns of a tree, each ready to be stored.

        Args:
            value: a tree of leaves `[...]`, or `[lanes, ...]`.
            rows: int64[m], the lanes that are looked at; the columns are `[m, ...]` then. None is all.

        Raises:
            SpecError: with the path of what does not fit.
        """
        found = self.take(value)
        if rows is None:
            return dict(zip(self.names, checked(self.checks, found), strict=True))
        return {
            name: _of_rows(leaf, name, spec, self.lanes, rows)
            for leaf, (name, spec) in zip(found, self.specs.items(), strict=True)
        }

    def read_each(self, values: Sequence[Any]) -> dict[str, Array]:
        """Returns the columns `[len(values), ...]` of one value for each lane.

        Raises:
            SpecError: with the path of what does not fit.
        """
        trees = [self.take(value) for value in values]
        return {
            name: np.stack([check_array(as_array(tree[place], name), spec, name) for tree in trees])
            for place, (name, spec) in enumerate(self.specs.items())
        }

    def row(self, columns: Mapping[str, Any], row: int) -> Any:
        """Returns the tree of one row of columns."""
        return build(self._node, {name: columns[name][row] for name in self.names})


class StepColumns:
    """The columns of a replay that step writers fill.

    Args:
        signature: of the replay.
        lanes: the axis that every leaf has in front; None for none.

    Raises:
        SpecError: a column is missing, or no call fills it.

    Attributes:
        specs: of all columns.
        observation, action: these parts.
        acting: the columns that come with an action: reward, flags, and its own.
        checks: of the columns `acting`, and then of those of an observation.
        extras: the columns of extras.
    """

    # Rules: trajectories A1

    def __init__(self, signature: Signature, lanes: int | None) -> None:
        tree = signature.tree
        if not isinstance(tree, Mapping):
            raise SpecError(
                f"signature: expected a mapping with {', '.join(_REQUIRED)}, got {type(tree).__name__}"
            )
        missing = [name for name in _REQUIRED if name not in tree]
        unknown = [name for name in tree if name not in (*_REQUIRED, "extras")]
        if missing or unknown:
            parts = [f"missing: {', '.join(missing)}"] * bool(missing)
            parts += [f"unknown: {', '.join(unknown)}"] * bool(unknown)
            raise SpecError(
                f"signature: expected {', '.join(_REQUIRED)} and, if used, extras; {'; '.join(parts)}"
            )
        for name in _SCALARS:
            spec = tree[name]
            if (
                not isinstance(spec, ArraySpec)
                or spec.shape != ()
                or (name != "reward" and spec.dtype != bool)
            ):
                wanted = "one number" if name == "reward" else "one boolean"
                raise SpecError(f"{name}: expected {wanted} a step, got {spec}")
        self.specs = signature.columns
        self.observation = TreeColumns(tree["observation"], "observation", lanes)
        self.action = TreeColumns(tree["action"], "action", lanes)
        scalars = [_check(name, self.specs[name], lanes) for name in _SCALARS]
        self.checks = [*scalars, *self.action.checks, *self.observation.checks]
        self.acting = (*_SCALARS, *self.action.names)
        self._lanes = lanes
        self._no_flags = bytes(lanes or 1)
        self.extras = tuple(name for name in self.specs if name == "extras" or name.startswith("extras/"))

    def leaves(self, scalars: tuple[Any, Any, Any], action: Any, next_observation: Any) -> tuple[Any, ...]:
        """Returns the arguments of a call as leaves, in the order of `checks`.

        Args:
            scalars: reward, terminated, truncated.
            action, next_observation: trees.

        Raises:
            SpecError: a tree of another structure.
        """
        return (*scalars, *self.action.take(action), *self.observation.take(next_observation))

    def any_set(self, terminated: Any, truncated: Any) -> bool:
        """Whether a flag is set in some lane."""
        if self._lanes is None:
            return bool(terminated or truncated)
        # Half of what it takes NumPy to count them.
        none = self._no_flags
        return bool(terminated.tobytes() != none or truncated.tobytes() != none)

    def with_lanes(self, values: Columns) -> dict[str, Array]:
        """Returns the columns with an axis of lanes, added where there is none."""
        if self._lanes is None:
            return {name: np.asarray(value)[None] for name, value in values.items()}
        return values

    def read_extras(self, extras: Any, expected: Sequence[str] | None, rows: Rows | None = None) -> Columns:
        """Returns the extras of one call, by column.

        Args:
            extras: a mapping, nested as the signature's; None for no entries.
            expected: the columns that must be there; None takes whatever is.
            rows: only these lanes are looked at.

        Raises:
            SpecError: columns that are unknown, missing or too many; a value that does not fit.
        """
        found: Columns = {}
        if extras is not None:
            self.collect_extras(extras, found)
        if expected is not None and set(found) != set(expected):
            wanted = ", ".join(expected) or "none"
            raise SpecError(
                f"extras: expected {wanted}, got {', '.join(found) or 'none'}. Those that add_first names come with "
                "each observation, the others with each action; that does not change while the writer is open"
            )
        leading = () if self._lanes is None else (self._lanes,)
        return {
            name: check_array(as_array(value, name), self.specs[name], name, leading)
            if rows is None
            else _of_rows(value, name, self.specs[name], self._lanes, rows)
            for name, value in found.items()
        }

    def collect_extras(self, extras: Any, out: Columns) -> None:
        """Puts the leaves of extras into `out`, by column.

        Raises:
            SpecError: there is no such column.
        """
        self._collect("extras", extras, out)

    def _collect(self, path: str, value: Any, out: Columns) -> None:
        if path in self.specs:
            out[path] = value
        elif isinstance(value, Mapping):
            for name, child in value.items():
                self._collect(f"{path}/{name}", child, out)
        elif isinstance(value, tuple | list):
            for index, child in enumerate(value):
                self._collect(f"{path}/{index}", child, out)
        else:
            known = ", ".join(self.extras) or "none"
            raise SpecError(f"{path}: expected extras among the signature's, which are: {known}")

    def zeros(self, name: str, count: int) -> Array:
        """`[count, ...]` of a column."""
        spec = self.specs[name]
        return np.zeros((count, *spec.shape), spec.dtype)


def _check(name: str, spec: ArraySpec, lanes: int | None) -> LeafCheck:
    leading = () if lanes is None else (lanes,)
    return LeafCheck(name, ArraySpec((*leading, *spec.shape), spec.dtype))


def _of_rows(value: Any, name: str, spec: ArraySpec, lanes: int | None, rows: Rows) -> Array:
    """Returns some rows of a leaf `[lanes, ...]`, checked; its other rows are ignored."""
    array = as_array(value, name)
    if array.shape != (lanes, *spec.shape):
        expected = ArraySpec((lanes or 0, *spec.shape), spec.dtype)
        raise SpecError(f"{name}: expected {expected}, got {array.dtype}{list(array.shape)}")
    return check_array(array[rows], spec, name, (len(rows),))
