"""Columns of several batches as one: the check that they fit, and the concatenation of trees."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace.errors import SpecError
from headrace.trees import build, collect, compile_tree


def joined(name: str, trees: Sequence[Any]) -> Any:
    """Returns the rows of all trees, in order, in new arrays; tensors where all are tensors.

    Args:
        name: of the column, for messages.
        trees: one or more, of the same containers.

    Raises:
        SpecError: containers differ, or shapes of rows; the message has the path.
    """
    if all(type(tree) is np.ndarray for tree in trees):
        return _joined_leaves(name, trees)
    node = compile_tree(trees[0], lambda value: hasattr(value, "shape"), name)
    parts: list[dict[str, Any]] = []
    for tree in trees:
        parts.append({})
        collect(node, tree, parts[-1])
    return build(node, {path: _joined_leaves(path, [part[path] for part in parts]) for path in parts[0]})


def check_same_names(columns: Sequence[Mapping[str, Any]]) -> None:
    """Checks that all have the same columns.

    Raises:
        SpecError: the message has the columns that some lack.
    """
    shared = set(columns[0]).intersection(*columns[1:])
    if extra := {name for each in columns for name in each if name not in shared}:
        raise SpecError(
            f"concat: expected the same columns in every batch, got {', '.join(sorted(extra))} in some only"
        )


def _joined_leaves(path: str, leaves: Sequence[Any]) -> Any:
    shapes = {tuple(leaf.shape[1:]) for leaf in leaves}
    if len(shapes) > 1:
        raise SpecError(f"{path}: expected rows of one shape, got {', '.join(map(str, sorted(shapes)))}")
    torch = sys.modules.get("torch")
    if torch is not None and all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return torch.cat(list(leaves))
    return np.concatenate(leaves)
