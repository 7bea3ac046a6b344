"""Containers of a tree: dicts, tuples, lists, named tuples and dataclasses, compiled once and then followed.

A tree is read against a `Branch` that was made from an example or a signature, so that every tree of one signature
gives its leaves in one order: dict keys sorted, the rest by index or by field.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from headrace.errors import SpecError

T = TypeVar("T")

# The name of the column of a tree that is one bare leaf.
BARE = "value"
# Deeper trees come from cycles or from hostile messages.
MAX_DEPTH = 64

# Classes that come back as themselves from JSON: by name; a string is the module to import for it.
_CONTAINERS: dict[str, type | str] = {}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array: the name of its column and whatever is known of it."""

    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Branch:
    """One container.

    Attributes:
        kind: "dict", "tuple", "list", "namedtuple", "dataclass" or "none".
        cls: what it is built as.
        path: where it stands; "" at the root.
        names: keys or fields, in the order of the columns.
        children: what stands under each name.
        order: the names as the container was given (dicts come back in this order).
    """

    kind: str
    cls: type
    path: str
    names: tuple[str, ...]
    children: tuple[Leaf | Branch, ...]
    order: tuple[str, ...]


Node = Leaf | Branch


def register_container(cls: type[T]) -> type[T]:
    """Lets a named tuple or a dataclass come back from `Signature.from_json` as itself; usable as a decorator."""
    if kind_of(cls) not in _RECORDS:
        raise TypeError(f"expected a named tuple or a dataclass, got {cls!r}")
    _CONTAINERS[cls.__name__] = cls
    return cls


def register_container_name(name: str, module: str) -> None:
    """As `register_container`, for a class that is imported only when a signature needs it."""
    _CONTAINERS.setdefault(name, module)


def kind_of(cls: type) -> str:
    """Which kind of container a class is; "" for a leaf."""
    if cls is dict or issubclass(cls, Mapping):
        return "dict"
    if issubclass(cls, tuple):
        return "namedtuple" if hasattr(cls, "_fields") else "tuple"
    if issubclass(cls, list):
        return "list"
    if cls is type(None):
        return "none"
    return "dataclass" if dataclasses.is_dataclass(cls) else ""


def compile_tree(tree: Any, is_leaf: Callable[[Any], bool], path: str = "", depth: int = 0) -> Node:
    """Reads the containers of `tree` into nodes.

    Raises:
        SpecError: keys that are not strings, are empty or contain "/" (paths would be ambiguous), and endless trees.
    """
    kind = "" if is_leaf(tree) else kind_of(type(tree))
    if not kind:
        return Leaf(path or BARE, tree)
    if depth > MAX_DEPTH:
        raise SpecError(f"{path}: expected at most {MAX_DEPTH} levels; does the tree contain itself?")
    order = _names(tree, kind, path)
    names = tuple(sorted(order)) if kind == "dict" else order
    values = entries(tree, kind)
    children = tuple(compile_tree(values[name], is_leaf, join(path, name), depth + 1) for name in names)
    cls = type(tree)
    if kind == "dict" and cls is not OrderedDict:
        cls = dict
    elif kind in ("tuple", "list"):
        cls = tuple if kind == "tuple" else list
    return Branch(kind, cls, path, names, children, order)


def entries(tree: Any, kind: str) -> Mapping[str, Any]:
    """The children of one container by name."""
    if kind == "dict":
        return cast("Mapping[str, Any]", tree)
    if kind in ("tuple", "list"):
        return {str(index): child for index, child in enumerate(tree)}
    if kind == "namedtuple":
        return dict(zip(tree._fields, tree, strict=True))
    if kind == "dataclass":
        return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree) if field.init}
    return {}


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


def leaves(node: Node) -> Iterator[Leaf]:
    """The leaves in the order of the columns."""
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children:
        yield from leaves(child)


def collect(node: Node, tree: Any, out: dict[str, Any]) -> None:
    """Puts the leaves of `tree` into `out` under their paths, following `node`.

    A named tuple or dataclass of another class with the same fields is accepted: the class may have crossed a wire.

    Raises:
        SpecError: another container, or the missing and the extra paths.
    """
    if isinstance(node, Leaf):
        out[node.path] = tree
        return
    kind = kind_of(type(tree))
    if kind != node.kind and not (kind in _RECORDS and node.kind in _RECORDS):
        where = node.path or "the tree"
        expected = node.cls.__name__ if node.kind != "none" else "None"
        raise SpecError(f"{where}: expected a container {expected}, got {type(tree).__name__}")
    values = entries(tree, kind)
    if len(values) != len(node.names) or any(name not in values for name in node.names):
        raise SpecError(differences(node.names, values, node.path))
    for name, child in zip(node.names, node.children, strict=True):
        collect(child, values[name], out)


def build(node: Node, columns: Mapping[str, Any]) -> Any:
    """The tree of `node` with the leaves from `columns`."""
    if isinstance(node, Leaf):
        return columns[node.path]
    built = {name: build(child, columns) for name, child in zip(node.names, node.children, strict=True)}
    match node.kind:
        case "dict":
            return node.cls((name, built[name]) for name in node.order)
        case "tuple" | "list":
            return node.cls(built.values())
        case "none":
            return None
        case _:
            return node.cls(**built)


def differences(expected: tuple[str, ...], found: Mapping[Any, Any], path: str = "") -> str:
    """Says which paths are missing and which are extra."""
    missing = [join(path, name) for name in expected if name not in found]
    extra = [join(path, str(name)) for name in found if name not in expected]
    parts = [f"missing {', '.join(missing)}"] * bool(missing) + [f"extra {', '.join(extra)}"] * bool(extra)
    return f"{path or 'the tree'}: expected {', '.join(expected) or 'nothing'}; {'; '.join(parts)}"


def shape_key(node: Node) -> Any:
    """What two equal trees share: kinds, names and leaves. Not the class itself, which may have crossed a wire."""
    if isinstance(node, Leaf):
        return node.value
    name = node.cls.__name__ if node.kind in _RECORDS else ""
    return (node.kind, name, node.names, tuple(shape_key(child) for child in node.children))


def classes_importable(node: Node) -> bool:
    """Whether every class of the tree can be found again by its name, as pickle does."""
    if isinstance(node, Leaf):
        return True
    found: Any = sys.modules.get(node.cls.__module__)
    for part in node.cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return (found is node.cls or node.kind == "none") and all(map(classes_importable, node.children))


def record_class(kind: str, name: str, fields: tuple[str, ...]) -> type:
    """The registered class of this name and these fields, else a new one that only carries them.

    Raises:
        SpecError: names that Python does not take.
    """
    known = _CONTAINERS.get(name)
    if isinstance(known, str):
        known = getattr(importlib.import_module(known), name)
    if known is not None and _fields(known) == fields:
        return cast("type", known)
    try:
        if kind == "namedtuple":
            return cast("type", namedtuple(name, fields))
        return dataclasses.make_dataclass(name, fields, frozen=True)
    except (TypeError, ValueError) as error:
        raise SpecError(
            f"expected a {kind} with usable names, got {name!r} with {fields!r}: {error}"
        ) from error


def join(path: str, name: str) -> str:
    """The path of `name` under `path`."""
    return f"{path}/{name}" if path else name


_RECORDS = ("namedtuple", "dataclass")


def _fields(cls: Any) -> tuple[str, ...]:
    if hasattr(cls, "_fields"):
        return cast("tuple[str, ...]", cls._fields)
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _names(tree: Any, kind: str, path: str) -> tuple[str, ...]:
    if kind in _RECORDS:
        return _fields(type(tree))
    if kind != "dict":
        return tuple(str(index) for index in range(len(tree or ())))
    for key in tree:
        if not isinstance(key, str) or not key or "/" in key:
            where = path or "the tree"
            raise SpecError(f"{where}: expected keys that are non-empty strings without '/', got {key!r}")
    return tuple(tree)
