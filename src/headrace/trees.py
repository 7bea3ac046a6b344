"""Containers of a tree: dicts, tuples, lists, named tuples, dataclasses and more, compiled once for all later trees.

A tree is read with a `Branch` made from an example or a signature. So every tree of one signature gives its leaves in
one order: dict keys sorted, other containers by index or field. Classes that the program registered with optree are
containers too.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from headrace.errors import SpecError

T = TypeVar("T")

# Name of the column of a tree that is a single leaf.
BARE = "value"
# A deeper tree has a cycle, or comes from a hostile message.
MAX_DEPTH = 64

# Classes that JSON restores, by name; a string is the module to import for the class.
_CONTAINERS: dict[str, type | str] = {}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array: the name of its column, and a value such as its spec."""

    path: str
    value: Any


@dataclass(frozen=True, slots=True)
class Branch:
    """One container.

    Attributes:
        kind: "dict", "tuple", "list", "deque", "namedtuple", "dataclass", "node" (registered with optree) or "none".
        cls: class of the container that `build` makes.
        path: path from the root; "" at the root.
        names: keys or fields, in the order of the columns.
        children: the node under each name.
        order: the names in the order of the original container (dicts are restored in this order).
        extra: data of the container besides its children: the factory of a `defaultdict`, the maximum length of a
            `deque`, the metadata of a registered class.
    """

    kind: str
    cls: type
    path: str
    names: tuple[str, ...]
    children: tuple[Leaf | Branch, ...]
    order: tuple[str, ...]
    extra: Any = None


Node = Leaf | Branch


def register_container(cls: type[T]) -> type[T]:
    """Lets `Signature.from_json` restore a named tuple or dataclass as its class; usable as a decorator."""
    if kind_of(cls) not in _RECORDS:
        raise TypeError(f"expected a named tuple or a dataclass, got {cls!r}")
    _CONTAINERS[cls.__name__] = cls
    return cls


def register_container_name(name: str, module: str) -> None:
    """Registers a class like `register_container`, but imports its module only when a signature needs it."""
    _CONTAINERS.setdefault(name, module)


def kind_of(cls: type) -> str:
    """Returns the kind of container of a class; "" for a leaf."""
    if cls is dict or issubclass(cls, Mapping):
        return "dict"
    if issubclass(cls, tuple):
        return "namedtuple" if hasattr(cls, "_fields") else "tuple"
    if issubclass(cls, list):
        return "list"
    if issubclass(cls, deque):
        return "deque"
    if cls is type(None):
        return "none"
    if _is_registered(cls):
        return "node"
    return "dataclass" if dataclasses.is_dataclass(cls) else ""


def compile_tree(tree: Any, is_leaf: Callable[[Any], bool], path: str = "", depth: int = 0) -> Node:
    """Reads the containers of `tree` into nodes.

    Raises:
        SpecError: a key is not a string, is empty or contains "/" (paths would be ambiguous); or the tree is too deep.
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
    return Branch(kind, _built_as(type(tree), kind), path, names, children, order, extra_of(tree, kind))


def entries(tree: Any, kind: str) -> Mapping[str, Any]:
    """Returns the children of one container by name."""
    if kind == "dict":
        return cast("Mapping[str, Any]", tree)
    if kind in ("tuple", "list", "deque"):
        return {str(index): child for index, child in enumerate(tree)}
    if kind == "namedtuple":
        return dict(zip(tree._fields, tree, strict=True))
    if kind == "dataclass":
        return {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree) if field.init}
    if kind == "node":
        flat = _flatten_registered(tree)
        return {str(entry): child for entry, child in zip(flat.entries, flat.children, strict=True)}
    return {}


def extra_of(tree: Any, kind: str) -> Any:
    """Returns the data of a container besides its children: see `Branch.extra`."""
    if type(tree) is defaultdict:
        return tree.default_factory
    if kind == "deque":
        return tree.maxlen
    return _flatten_registered(tree).metadata if kind == "node" else None


def at_path(tree: Any, path: str) -> Any:
    """Returns the leaf or container at a path of a tree.

    Raises:
        KeyError: no such path; the message has the known names.

    >>> at_path({"observation": {"camera": 1, "arm": (2, 3)}}, "observation/arm/1")
    3
    """
    if path == BARE and not kind_of(type(tree)):
        return tree
    node = tree
    for part in path.split("/"):
        below = entries(node, kind_of(type(node)))
        if part not in below:
            known = ", ".join(map(str, entries(tree, kind_of(type(tree))))) or BARE
            raise KeyError(f"no column {path!r}; there are {known}")
        node = below[part]
    return node


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Returns the same containers with `function(leaf)` in place of each leaf.

    >>> map_leaves(abs, {"a": -1, "b": (-2, None)})
    {'a': 1, 'b': (2, None)}
    """
    kind = kind_of(type(tree))
    if not kind:
        return function(tree)
    mapped = {name: map_leaves(function, child) for name, child in entries(tree, kind).items()}
    return _container(kind, _built_as(type(tree), kind), extra_of(tree, kind), mapped)


def leaves(node: Node) -> Iterator[Leaf]:
    """Yields the leaves in the order of the columns."""
    if isinstance(node, Leaf):
        yield node
        return
    for child in node.children:
        yield from leaves(child)


def collect(node: Node, tree: Any, out: dict[str, Any]) -> None:
    """Puts the leaves of `tree` into `out` under their paths, following `node`.

    A named tuple or dataclass of another class with the same fields is accepted: the class may come from another
    process.

    Raises:
        SpecError: the containers differ; the message has the container, or the missing and the extra paths.
    """
    if isinstance(node, Leaf):
        out[node.path] = tree
        return
    kind = kind_of(type(tree))
    is_other = kind != node.kind or (kind == "node" and type(tree) is not node.cls)
    if is_other and not (kind in _RECORDS and node.kind in _RECORDS):
        where = node.path or "the tree"
        expected = node.cls.__name__ if node.kind != "none" else "None"
        raise SpecError(f"{where}: expected a container {expected}, got {type(tree).__name__}")
    values = entries(tree, kind)
    if len(values) != len(node.names) or any(name not in values for name in node.names):
        raise SpecError(differences(node.names, values, node.path))
    for name, child in zip(node.names, node.children, strict=True):
        collect(child, values[name], out)


def build(node: Node, columns: Mapping[str, Any]) -> Any:
    """Builds the tree of `node` with the leaves from `columns`."""
    if isinstance(node, Leaf):
        return columns[node.path]
    built = {name: build(child, columns) for name, child in zip(node.names, node.children, strict=True)}
    ordered = {name: built[name] for name in node.order} if node.kind == "dict" else built
    return _container(node.kind, node.cls, node.extra, ordered)


def differences(expected: tuple[str, ...], found: Mapping[Any, Any], path: str = "") -> str:
    """Says which paths are missing and which are extra."""
    missing = [join(path, name) for name in expected if name not in found]
    extra = [join(path, str(name)) for name in found if name not in expected]
    parts = [f"missing {', '.join(missing)}"] * bool(missing) + [f"extra {', '.join(extra)}"] * bool(extra)
    return f"{path or 'the tree'}: expected {', '.join(expected) or 'nothing'}; {'; '.join(parts)}"


def no_description(node: Branch) -> str:
    """Says why a class registered with optree cannot be written down."""
    return (
        f"{node.path or 'the tree'}: expected containers that can be written to a file, got {node.cls.__name__}, which "
        "is registered with optree; use a dict, a named tuple or a dataclass here"
    )


def shape_key(node: Node) -> Any:
    """Returns a key that equal trees share: kinds, names and leaves.

    The class itself is left out, because it may come from another process.
    """
    if isinstance(node, Leaf):
        return node.value
    detail = node.cls.__name__ if node.kind in (*_RECORDS, "node") else ""
    if node.kind == "deque":
        detail = node.extra
    return (node.kind, detail, node.names, tuple(shape_key(child) for child in node.children))


def classes_importable(node: Node) -> bool:
    """Whether pickle finds every class of the tree by its name, and every factory of a `defaultdict`."""
    if isinstance(node, Leaf):
        return True
    factory = node.extra if node.cls is defaultdict else None
    importable = _is_importable(node.cls) or node.kind == "none"
    importable = importable and (factory is None or _is_importable(factory))
    return importable and all(map(classes_importable, node.children))


def record_class(kind: str, name: str, fields: tuple[str, ...]) -> type:
    """Returns the registered class of this name and these fields, else a new class with these fields.

    Raises:
        SpecError: a name is not a valid Python name.
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
    """Returns the path of `name` under `path`."""
    return f"{path}/{name}" if path else name


_RECORDS = ("namedtuple", "dataclass")


def _built_as(cls: type, kind: str) -> type:
    """Returns the class that `build` makes for containers of `cls`: `cls`, or the built-in one of the kind."""
    if kind == "dict":
        return cls if cls in (OrderedDict, defaultdict) else dict
    return {"tuple": tuple, "list": list, "deque": deque}.get(kind, cls)


def _container(kind: str, cls: Any, extra: Any, children: dict[str, Any]) -> Any:
    """Builds a container of these children, in this order."""
    match kind:
        case "dict":
            return cls(extra, children) if cls is defaultdict else cls(children)
        case "tuple" | "list":
            return cls(children.values())
        case "deque":
            return deque(children.values(), extra)
        case "none":
            return None
        case "node":
            return _optree().register_pytree_node.get(cls).unflatten_func(extra, tuple(children.values()))
        case _:
            return cls(**children)


def _optree() -> Any:
    """Returns optree if the program has loaded it, because only then are there registered classes."""
    return sys.modules.get("optree")


def _is_registered(cls: type) -> bool:
    optree = _optree()
    if optree is None:
        return False
    entry = optree.register_pytree_node.get(cls)
    # One entry stands for all named tuples, and one for all structures of the standard library.
    return entry is not None and entry.type is cls


def _flatten_registered(tree: Any) -> Any:
    return _optree().tree_flatten_one_level(tree, none_is_leaf=True)


def _is_importable(named: Any) -> bool:
    found: Any = sys.modules.get(getattr(named, "__module__", ""))
    for part in getattr(named, "__qualname__", "").split("."):
        found = getattr(found, part, None)
    return found is named


def _fields(cls: Any) -> tuple[str, ...]:
    if hasattr(cls, "_fields"):
        return cast("tuple[str, ...]", cls._fields)
    return tuple(field.name for field in dataclasses.fields(cls) if field.init)


def _names(tree: Any, kind: str, path: str) -> tuple[str, ...]:
    if kind in _RECORDS:
        return _fields(type(tree))
    if kind not in ("dict", "node"):
        return tuple(str(index) for index in range(len(tree or ())))
    names: Mapping[Any, Any] = entries(tree, kind)
    for key in names:
        if not isinstance(key, str) or not key or "/" in key:
            where = path or "the tree"
            raise SpecError(f"{where}: expected keys that are non-empty strings without '/', got {key!r}")
    return tuple(names)
