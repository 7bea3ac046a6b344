"""The leaves of a batch's tree: whatever containers a signature or views made it of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from headrace.trees import entries, kind_of


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same containers with `function(leaf)` in place of each leaf.

    >>> map_leaves(abs, {"a": -1, "b": (-2, None)})
    {'a': 1, 'b': (2, None)}
    """
    cls = type(tree)
    match kind_of(cls):
        case "":
            return function(tree)
        case "none":
            return None
        case kind:
            mapped = {name: map_leaves(function, child) for name, child in entries(tree, kind).items()}
    if kind == "dict":
        return OrderedDict(mapped) if cls is OrderedDict else mapped
    return cls(mapped.values()) if kind in ("tuple", "list") else cls(**mapped)
