"""Signatures: a tree of arrays as named columns.

A tree of nested dicts, tuples, lists, deques, named tuples, dataclasses and classes registered with optree is stored as
flat columns whose names are the paths of its leaves: `observation/camera`, `obs/0`. Dict keys are taken in sorted
order, named tuples and dataclasses in the order of their fields. `None` and empty containers hold no column. A tree
that is one bare array has the one column `value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import trees
from headrace.arrays import ArraySpec, as_array, check_array
from headrace.errors import SpecError
from headrace.tree_json import node_from_json, node_to_json
from headrace.trees import BARE, register_container, register_container_name

__all__ = [
    "BARE",
    "ArraySpec",
    "Signature",
    "as_array",
    "check_array",
    "register_container",
    "register_container_name",
]


class Signature:
    """The form of one step: a tree of `ArraySpec`, and the names of its columns.

    Immutable, hashable, picklable. Two signatures are equal when containers, names, shapes and dtypes are; the order
    in which the keys of a dict were given does not matter, but `unflatten` gives them back in that order.

    Args:
        tree: nested dicts, tuples, lists, deques, named tuples, dataclasses and classes registered with optree, of
            `ArraySpec`; or one bare `ArraySpec`, whose column is `value`.

    Raises:
        SpecError: a leaf that is not an `ArraySpec`; a key that is not a string, is empty or contains "/".

    >>> signature = Signature({"obs": (ArraySpec(3, "float32"), ArraySpec((), bool)), "action": ArraySpec((), int)})
    >>> signature
    Signature({'obs': (float32[3], bool[]), 'action': int64[]})
    >>> list(signature.columns)
    ['action', 'obs/0', 'obs/1']
    >>> signature.zeros(2)["obs"][0].shape
    (2, 3)
    """

    __slots__ = ("_columns", "_flat", "_key", "_root")

    def __init__(self, tree: Any) -> None:
        self._root = trees.compile_tree(tree, lambda node: isinstance(node, ArraySpec))
        self._columns: dict[str, ArraySpec] = {}
        for leaf in trees.leaves(self._root):
            if not isinstance(leaf.value, ArraySpec):
                got = type(leaf.value).__name__
                raise SpecError(
                    f"{leaf.path}: expected an ArraySpec, got {got}; {maker_for(leaf.value)} makes one"
                )
            self._columns[leaf.path] = leaf.value
        self._flat = self._flat_names()
        self._key = trees.shape_key(self._root)

    @classmethod
    def like(cls, example: Any) -> Signature:
        """The signature of one example step: shapes and dtypes are read, values are not.

        Args:
            example: a tree of arrays, NumPy scalars, or Python scalars (float is float64, int is int64, bool is
                bool). torch and JAX arrays on the CPU are accepted. Lists are containers, not arrays.

        Raises:
            SpecError: with the path of a string, an object, or an array on another device; a signature.

        >>> Signature.like({"obs": np.zeros(4, np.float32), "reward": 0.0})
        Signature({'obs': float32[4], 'reward': float64[]})
        """
        if isinstance(example, Signature):
            raise SpecError("expected an example of one step, got its Signature; its zeros() are an example")
        if _is_space(example):
            raise SpecError(f"expected an example of one step, got a space; {maker_for(example)} makes one")
        root = trees.compile_tree(example, lambda node: isinstance(node, np.ndarray | np.generic))
        specs = {}
        for leaf in trees.leaves(root):
            if _is_space(leaf.value):
                raise SpecError(
                    f"{leaf.path}: expected an array, got a space; {maker_for(leaf.value)} makes one"
                )
            array = as_array(leaf.value, leaf.path)
            specs[leaf.path] = ArraySpec(array.shape, array.dtype)
        return cls(trees.build(root, specs))

    @classmethod
    def of_space(cls, space: Any) -> Signature:
        """The signature of one element of a gymnasium space: Box, Discrete, MultiDiscrete, MultiBinary, Dict, Tuple.

        Raises:
            SpecError: with the path of a space whose elements have no fixed shape (Text, Graph, Sequence, OneOf), or
                of anything else.

        >>> from gymnasium.spaces import Box, Dict, Discrete
        >>> Signature.of_space(Dict(arm=Box(-1, 1, (3,)), grip=Discrete(2)))
        Signature({'arm': float32[3], 'grip': int64[]})
        """
        return cls(_space_specs(space, ""))

    @classmethod
    def from_json(cls, data: Any) -> Signature:
        """The signature that `to_json` described.

        Named tuples and dataclasses come back as themselves when they were given to `register_container`
        (`headrace.Trajectory` is); otherwise as a new class with the same name and fields.

        Raises:
            SpecError: anything that `to_json` does not write.
        """
        root = node_from_json(data, _spec_from_json)
        return cls(trees.build(root, {leaf.path: leaf.value for leaf in trees.leaves(root)}))

    def to_json(self) -> dict[str, Any]:
        """This signature as dicts, lists, strings and integers. A `defaultdict` is described as a dict.

        Raises:
            SpecError: a class registered with optree, which only the program that registered it can build.

        >>> Signature({"a": ArraySpec(2, "uint8")}).to_json()
        {'kind': 'dict', 'children': {'a': {'shape': [2], 'dtype': 'uint8'}}}
        """
        return node_to_json(self._root, _spec_to_json)

    @property
    def columns(self) -> dict[str, ArraySpec]:
        """Path to spec, in the order of the columns (a copy)."""
        return dict(self._columns)

    @property
    def tree(self) -> Any:
        """The tree of `ArraySpec` this signature was made from, in new containers."""
        return trees.build(self._root, self._columns)

    @property
    def is_flat(self) -> bool:
        """Whether the tree is one dict of arrays: then its columns are its items."""
        return self._flat is not None

    @property
    def nbytes(self) -> int:
        """Bytes of one step."""
        return sum(spec.nbytes for spec in self._columns.values())

    def flatten(self, tree: Any) -> dict[str, NDArray[Any]]:
        """Takes a tree apart into columns. Checks the containers; shapes and dtypes are left to `validate`.

        Args:
            tree: as the signature's tree, with an array, a scalar or lists of numbers at each leaf.

        Returns:
            Path to array, in the order of `columns`. Arrays are not copied.

        Raises:
            SpecError: with the missing and the extra paths, or the path of a leaf that is not an array.
        """
        flat = self._flat
        if flat is not None and type(tree) is dict and len(tree) == len(flat):
            try:
                return {k: v if type(v := tree[k]) is np.ndarray else as_array(v, k) for k in flat}
            except KeyError:
                pass  # The general way says what is missing.
        found: dict[str, Any] = {}
        trees.collect(self._root, tree, found)
        return {k: v if type(v) is np.ndarray else as_array(v, k) for k, v in found.items()}

    def unflatten(self, columns: Mapping[str, Any]) -> Any:
        """Puts columns together into a tree of this signature. The leaves may be anything, with any leading axes.

        Raises:
            SpecError: with the missing and the extra columns.
        """
        if len(columns) != len(self._columns) or not all(name in columns for name in self._columns):
            raise SpecError(trees.differences(tuple(self._columns), columns))
        return trees.build(self._root, columns)

    def zeros(self, *leading: int) -> Any:
        """A tree of zeros, each leaf of shape `leading + spec.shape`."""
        return trees.build(
            self._root, {k: np.zeros(leading + s.shape, s.dtype) for k, s in self._columns.items()}
        )

    def validate(self, tree: Any, leading: tuple[int, ...] = ()) -> dict[str, NDArray[Any]]:
        """Checks a whole tree before anything is stored: containers, shapes, dtypes and values.

        Args:
            tree: as for `flatten`.
            leading: axes that every leaf has before its own, such as `(lanes,)`.

        Returns:
            The columns, ready to be stored: each of its spec's dtype and of shape `leading + spec.shape`.

        Raises:
            SpecError: with the path, what was expected and what came (`check_array` has the table of casts).

        >>> Signature.like({"reward": 0.0}).validate({"reward": [1, 2]}, leading=(2,))
        {'reward': array([1., 2.])}
        """
        specs = self._columns
        return {k: check_array(v, specs[k], k, leading) for k, v in self.flatten(tree).items()}

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Signature) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Signature({self.tree!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if trees.classes_importable(self._root):
            return Signature, (self.tree,)
        return Signature.from_json, (self.to_json(),)

    def _flat_names(self) -> tuple[str, ...] | None:
        root = self._root
        if isinstance(root, trees.Leaf) or root.cls is not dict:
            return None
        return root.names if all(isinstance(child, trees.Leaf) for child in root.children) else None


def first_difference(expected: Signature, got: Signature) -> str | None:
    """Returns the first difference between two signatures, in words; None if they are equal.

    >>> first_difference(Signature.like({"a": 0}), Signature.like({"a": 0.0}))
    'a: expected int64[], got float64[]'
    """
    wanted, found = expected.columns, got.columns
    for name in {**wanted, **found}:
        if wanted.get(name) != found.get(name):
            return f"{name}: expected {wanted.get(name, 'no such column')}, got {found.get(name, 'no such column')}"
    return None if expected == got else f"expected the tree {expected!r}, got {got!r}"


def maker_for(value: Any) -> str:
    """Names the call that makes a signature of a value, for messages."""
    return "Signature.of_space(space)" if _is_space(value) else "Signature.like(example)"


def _is_space(value: Any) -> bool:
    # By name: importing headrace must not load gymnasium.
    names = [(cls.__module__.partition(".")[0], cls.__name__) for cls in type(value).__mro__]
    return ("gymnasium", "Space") in names


def _space_specs(space: Any, path: str) -> Any:
    from gymnasium import spaces  # Here: importing headrace must not load it.

    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return ArraySpec(space.shape or (), space.dtype)
    if isinstance(space, spaces.Dict):
        return {key: _space_specs(child, trees.join(path, str(key))) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_space_specs(child, trees.join(path, str(i))) for i, child in enumerate(space.spaces))
    raise SpecError(
        f"{path or BARE}: expected a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space, whose elements "
        f"have one shape, got {type(space).__name__}; wrap the environment so that it gives arrays"
    )


def _spec_to_json(spec: ArraySpec) -> dict[str, Any]:
    return {"shape": list(spec.shape), "dtype": spec.dtype.name}


def _spec_from_json(data: dict[str, Any], path: str) -> ArraySpec:
    shape, dtype = data.get("shape"), data.get("dtype")
    if not isinstance(shape, list) or not isinstance(dtype, str):
        raise SpecError(f"{path}: expected a shape and a dtype, got {data!r:.80}")
    try:
        return ArraySpec(shape, dtype)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error
