"""Accumulator of a sample whose parts come at different rates, on the actor's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.spec import ArraySpec, as_array
from headrace.store.columns import RowColumns
from headrace.trajectories.columns.leaf_reader import LeafCheck, is_flat_dict, reader
from headrace.trees import Branch, Node, build, compile_tree, leaves

# One set is filled while the caller has the two that were built last.
_SETS = 3


class TrajectoryAccumulator:
    """Gathers rows by timescale with `add` and hands them out together with `build`.

    **The arrays of one `build` stay as they are until the second `build` after it is called**: not `add`, not `reset`,
    and not the next `build` changes them. After that their memory may be reused, so copy what is kept for longer. One
    sample can be sent while the next is gathered, without a copy.

    Each top-level key of `example` is a timescale. If one of its leaves is 0-d, or all have `shape[0] == 1`, it is a
    single item (capacity 1, leaves as they are). Otherwise all leaves have the same `shape[0] = N`, and it is buffered:
    N slots, filled one by one with values of shape `leaf.shape[1:]`. Slots that were not filled are zeros.

    Not thread-safe: one accumulator belongs to one actor thread.

    Args:
        example: timescale to a tree of arrays or scalars. Structure, shapes and dtypes are used, values are not.

    Raises:
        TypeError: `example` is not a dict.
        ValueError: a timescale without a leaf, or whose leaves differ in their first axis; as `SpecError` with the
            path, a leaf that is not an array of numbers or booleans.

    >>> acc = TrajectoryAccumulator({"step": {"obs": np.zeros((3, 2), np.float32)}, "episode": {"return": 0.0}})
    >>> acc.add("step", {"obs": [1, 2]})
    >>> acc.add("episode", {"return": 12.5})
    >>> acc
    TrajectoryAccumulator(step 1/3, episode 1/1)
    >>> sample = acc.build()
    >>> sample["step"]["obs"].tolist(), sample["episode"]["return"]
    ([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], array(12.5))
    """

    __slots__ = ("_scales",)

    def __init__(self, example: dict[str, Any]) -> None:
        if not isinstance(example, dict):
            raise TypeError(f"example: expected a dict of timescales, got {type(example).__name__}")
        root = compile_tree(example, lambda node: isinstance(node, np.ndarray | np.generic))
        assert isinstance(root, Branch)
        nodes = dict(zip(root.names, root.children, strict=True))
        self._scales = {name: _Timescale(name, nodes[name]) for name in root.order}

    def add(self, name: str, data: Any) -> None:
        """Copies one row into the next free slot of a timescale. After an error nothing has changed.

        Args:
            name: the timescale.
            data: a tree with the timescale's containers; at each leaf anything NumPy makes an array of numbers of.
                Buffered, with per-item shape S: `S` or `(1, *S)`. Single, with shape S: `S`, or without a leading 1.

        Raises:
            KeyError: no such timescale.
            IndexError: no free slot.
            SpecError: structure, shape, dtype or a value that does not fit, with the path.
        """
        scale = self._scales.get(name) or self._scale(name)
        index = scale.count
        if index >= scale.capacity:
            raise IndexError(
                f"{name}: no free slot at index {index}, capacity is {scale.capacity}; build() or reset() first"
            )
        # The next row, or the zeros of `build`, overwrite the remains of a refused row in its slot.
        if type(data) is dict and len(data) == scale.width:
            try:
                scale.rows.put(index, data)
            except KeyError:
                scale.put(index, data)  # The reader says what is missing.
        else:
            scale.put(index, data)
        scale.count = index + 1

    def build(self, strict: bool = False) -> dict[str, Any]:
        """Hands out the rows added since the last `build` and starts the next rollout.

        The arrays stay as they are until the second `build` after this one is called; two successive builds share no
        memory.

        Args:
            strict: raise, and change nothing, unless every timescale is full.

        Returns:
            Timescale to tree, each leaf with the example's shape and dtype, in new containers; zeros in slots that were
            not filled.

        Raises:
            ValueError: `strict` and a timescale is not full.
        """
        if strict and not self.is_full():
            missing = ", ".join(
                f"{name} has {scale.count} of {scale.capacity}"
                for name, scale in self._scales.items()
                if not scale.full
            )
            raise ValueError(f"build(strict=True): expected every timescale to be full, but {missing}")
        built = {name: scale.tree() for name, scale in self._scales.items()}
        for scale in self._scales.values():
            scale.turn()
        return built

    def reset(self) -> None:
        """Forgets the rows added since the last `build`; earlier results stay as they are."""
        for scale in self._scales.values():
            scale.count = 0

    def is_full(self, name: str | None = None) -> bool:
        """Whether a timescale has no free slot; without a name, whether all have none.

        Raises:
            KeyError: no such timescale.
        """
        if name is not None:
            return self._scale(name).full
        return all(scale.full for scale in self._scales.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The timescales in the example's order."""
        return tuple(self._scales)

    def capacity(self, name: str) -> int:
        """Returns the number of slots of a timescale.

        Raises:
            KeyError: no such timescale.
        """
        return self._scale(name).capacity

    def count(self, name: str) -> int:
        """Returns the number of filled slots of a timescale.

        Raises:
            KeyError: no such timescale.
        """
        return self._scale(name).count

    def __repr__(self) -> str:
        parts = (f"{name} {scale.count}/{scale.capacity}" for name, scale in self._scales.items())
        return f"TrajectoryAccumulator({', '.join(parts)})"

    def _scale(self, name: str) -> _Timescale:
        try:
            return self._scales[name]
        except KeyError:
            known = ", ".join(map(repr, self._scales)) or "none"
            raise KeyError(f"no timescale {name!r}; there are {known}") from None


class _Timescale:
    """One timescale: its slots, in rotating sets of arrays.

    Attributes:
        capacity, count: number of slots, and of filled slots.
        rows: columns of this rollout, by the keys of a row or by the number of the leaf.
        width: number of keys of a row that is one dict of leaves; else None.
    """

    __slots__ = (
        "_names",
        "_node",
        "_paths",
        "_read",
        "_rows",
        "_sets",
        "_shapes",
        "_turn",
        "capacity",
        "count",
        "rows",
        "width",
    )

    def __init__(self, name: str, example: Node) -> None:
        arrays = {leaf.path: as_array(leaf.value, leaf.path) for leaf in leaves(example)}
        capacity = _capacity(name, [array.shape for array in arrays.values()])
        self.capacity = 1 if capacity is None else capacity
        self.count = 0
        self._read = reader(example)
        self._node = example
        self._paths = list(arrays)
        checks = [_leaf_check(path, array, capacity is None) for path, array in arrays.items()]
        self._shapes = [array.shape for array in arrays.values()]
        # One slot or many: `slots[capacity, ...]` of every leaf.
        self._sets = [
            [np.zeros((self.capacity, *check.shape), check.dtype) for check in checks] for _ in range(_SETS)
        ]
        # One dict of leaves is read by its own keys, all else in the order of the leaves.
        self._names: Sequence[Any] = example.names if is_flat_dict(example) else range(len(checks))
        self.width = len(checks) if is_flat_dict(example) else None
        self._rows = [
            RowColumns(
                (name, slots, check.check)
                for name, slots, check in zip(self._names, each, checks, strict=True)
            )
            for each in self._sets
        ]
        self._turn = 0
        self.rows = self._rows[0]

    def put(self, slot: int, data: Any) -> None:
        """Writes any tree at a slot."""
        values = self._read(data)
        self.rows.put(slot, values if self.width is None else dict(zip(self._names, values, strict=True)))

    @property
    def full(self) -> bool:
        return self.count >= self.capacity

    def tree(self) -> Any:
        """Returns the arrays of this rollout, zeros where nothing was added."""
        arrays = self._sets[self._turn]
        if self.count < self.capacity:
            for array in arrays:
                array[self.count :] = 0
        # Views, so that a caller who sets flags or shapes does it to the view.
        views = (array.reshape(shape) for array, shape in zip(arrays, self._shapes, strict=True))
        return build(self._node, dict(zip(self._paths, views, strict=True)))

    def turn(self) -> None:
        self._turn = (self._turn + 1) % _SETS
        self.rows = self._rows[self._turn]
        self.count = 0


def _capacity(name: str, shapes: list[tuple[int, ...]]) -> int | None:
    """Returns the number of slots; None for a single item."""
    if not shapes:
        raise ValueError(f"{name}: expected at least one array in this timescale, got none")
    if () in shapes or all(shape[0] == 1 for shape in shapes):
        return None
    sizes = sorted({shape[0] for shape in shapes})
    if len(sizes) > 1:
        raise ValueError(
            f"{name}: expected one size of the first axis in all leaves, got {sizes}; to make the timescale a single "
            "item give every leaf a first axis of 1, or make one leaf a scalar"
        )
    return sizes[0]


def _leaf_check(path: str, example: np.ndarray[Any, Any], single: bool) -> LeafCheck:
    if not single:
        shape = example.shape[1:]
        return LeafCheck(path, ArraySpec(shape, example.dtype), also=(1, *shape))
    shape = example.shape
    return LeafCheck(path, ArraySpec(shape, example.dtype), also=shape[1:] if shape[:1] == (1,) else shape)
