"""Containers of a tree as JSON, with any description of the leaves."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from headrace import trees
from headrace.errors import SpecError

_CLASSES = {"dict": dict, "tuple": tuple, "list": list, "deque": deque}


def node_to_json(node: trees.Node, leaf_to_json: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Returns a tree as dicts, lists, strings and integers.

    Args:
        node: result of `trees.compile_tree`.
        leaf_to_json: called with the value of each leaf; its result has no key "kind".

    Raises:
        SpecError: a container is registered with optree; only the program that registered it can build it.

    >>> root = trees.compile_tree({"a": (1, 2)}, lambda value: isinstance(value, int))
    >>> node_to_json(root, lambda value: {"leaf": value})
    {'kind': 'dict', 'children': {'a': {'kind': 'tuple', 'children': [{'leaf': 1}, {'leaf': 2}]}}}
    """
    if isinstance(node, trees.Leaf):
        return leaf_to_json(node.value)
    by_name = zip(node.names, node.children, strict=True)
    children = {name: node_to_json(child, leaf_to_json) for name, child in by_name}
    match node.kind:
        case "none":
            return {"kind": "none"}
        case "tuple" | "list":
            return {"kind": node.kind, "children": list(children.values())}
        case "deque":
            return {"kind": "deque", "maxlen": node.extra, "children": list(children.values())}
        case "dict":
            return {"kind": "dict", "children": {name: children[name] for name in node.order}}
        case "node":
            raise SpecError(trees.no_description(node))
        case kind:
            return {"kind": kind, "name": node.cls.__name__, "children": children}


def node_from_json(
    data: Any, leaf_from_json: Callable[[dict[str, Any], str], Any], path: str = "", depth: int = 0
) -> trees.Node:
    """Returns the tree that `node_to_json` described.

    A named tuple or a dataclass comes back as its own class if that was given to `register_container`, otherwise as a
    new class with the same name and fields.

    Args:
        data: the description.
        leaf_from_json: called with the description of each leaf and its path.
        path: of the root.
        depth: number of containers around the root.

    Raises:
        SpecError: anything that `node_to_json` does not write.
    """
    here = path or "the tree"
    if not isinstance(data, dict) or depth > trees.MAX_DEPTH:
        raise SpecError(f"{here}: expected the description of an array or a container, got {data!r:.80}")
    if "kind" not in data:
        return trees.Leaf(path or trees.BARE, leaf_from_json(data, path or trees.BARE))
    kind, children = data["kind"], data.get("children")
    if kind == "none":
        return trees.Branch("none", type(None), path, (), (), ())
    if kind in ("tuple", "list", "deque") and isinstance(children, list):
        named = {str(index): child for index, child in enumerate(children)}
    elif kind in ("dict", "namedtuple", "dataclass") and isinstance(children, dict):
        named = children
    else:
        raise SpecError(f"{here}: expected a kind of container with its children, got {data!r:.80}")
    order = tuple(named)
    if any(not name or "/" in name for name in order):
        raise SpecError(f"{here}: expected names without '/', got {order!r:.80}")
    names = tuple(sorted(order)) if kind == "dict" else order
    built = tuple(
        node_from_json(named[name], leaf_from_json, trees.join(path, name), depth + 1) for name in names
    )
    cls = _CLASSES.get(kind) or trees.record_class(kind, str(data.get("name")), order)
    return trees.Branch(
        kind, cls, path, names, built, order, _maxlen(data, here) if kind == "deque" else None
    )


def _maxlen(data: dict[str, Any], here: str) -> int | None:
    maxlen = data.get("maxlen")
    if maxlen is None or (type(maxlen) is int and maxlen >= len(data["children"])):
        return maxlen
    raise SpecError(f"{here}: expected a maxlen that holds the children, got {data!r:.80}")
