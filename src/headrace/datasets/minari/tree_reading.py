"""Trees of observations, actions and infos, read as the spaces of a dataset say."""

# Rules: datasets K11

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gymnasium import Space, spaces

from headrace.errors import SpecError
from headrace.trees import join

# The children of a container, by name or by index; None for an array.
Children = Callable[[Any, Space[Any] | None], Mapping[str, Any] | Sequence[Any] | None]


def read_tree(
    node: Any,
    space: Space[Any] | None,
    path: str,
    children: Children,
    read_array: Callable[[Any, Space[Any] | None, str], Any],
) -> Any:
    """Returns the tree of arrays below a node of a file.

    Args:
        node: a container or an array of the file.
        space: of the tree; None takes the containers of the file.
        path: of the node, for errors.
        children: returns the children of a node, with its space.
        read_array: reads the array of a node, with its space and path.

    Raises:
        SpecError: other containers than those of the space; with the path.
    """
    found = children(node, space)
    if found is None:
        if isinstance(space, spaces.Dict | spaces.Tuple):
            raise SpecError(f"{path}: expected the parts of {space}, got one array")
        return read_array(node, space, path)
    named = found if isinstance(found, Mapping) else {str(index): each for index, each in enumerate(found)}
    wanted: dict[str, Space[Any]] = {}
    if isinstance(space, spaces.Dict):
        wanted = dict(space.spaces)
    elif isinstance(space, spaces.Tuple):
        wanted = {str(index): each for index, each in enumerate(space.spaces)}
        named = {name: named[name] for name in wanted if name in named}
    elif space is not None:
        raise SpecError(f"{path}: expected one array for {space}, got {', '.join(named)}")
    missing = [join(path, name) for name in wanted if name not in named]
    if missing:
        raise SpecError(f"{', '.join(missing)}: missing; there are {', '.join(named) or 'no parts'}")
    tree = {
        name: read_tree(child, wanted.get(name), join(path, name), children, read_array)
        for name, child in named.items()
    }
    is_tuple = isinstance(space, spaces.Tuple) or not isinstance(found, Mapping)
    return tuple(tree.values()) if is_tuple else tree
