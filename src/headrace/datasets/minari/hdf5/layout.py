"""Layout of an episode in its HDF5 group."""

# Rules: datasets K6, K10

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace import trees
from headrace.datasets.exporting.structure import Structure
from headrace.errors import SpecError

# Extras are among the infos, where Minari keeps values that it does not know.
EXTRAS = "infos/extras"


@dataclass(frozen=True, slots=True)
class Layout:
    """Groups and datasets of one episode; every episode of a file has the same.

    Attributes:
        groups: paths of the groups, each after the group that it lies in.
        datasets: maps the path of each array in an episode to the path of its dataset.
    """

    groups: tuple[str, ...]
    datasets: dict[str, str]


def layout_of(structure: Structure) -> Layout:
    """Returns the layout of episodes of this structure.

    Raises:
        SpecError: Minari has no place for a part of the structure.
    """
    infos, extras = structure.roots["infos"], structure.roots["extras"]
    if isinstance(infos, trees.Branch) and "extras" in infos.names:
        raise SpecError(f"{EXTRAS}: this name is where Minari datasets keep an episode's extras; rename it")
    groups: list[str] = []
    datasets: dict[str, str] = {}
    for part, root in structure.roots.items():
        if part == "extras" and not (isinstance(extras, trees.Branch) and extras.names):
            continue
        for path, node in _walk(root, EXTRAS if part == "extras" else part):
            if isinstance(node, trees.Leaf):
                datasets[node.path] = path
            elif node.kind != "none":
                groups.append(path)
            elif part in ("observations", "actions"):
                raise SpecError(f"{node.path}: expected an array, got None, for which there is no space")
    # In this order a group comes after those that it lies in.
    return Layout(tuple(sorted(groups)), datasets)


def index_name(index: int) -> str:
    """Returns the name of an element of a tuple in HDF5."""
    return f"_index_{index}"


def _walk(node: trees.Node, path: str) -> Iterator[tuple[str, trees.Node]]:
    """Yields each array and container with its path in HDF5."""
    yield path, node
    if isinstance(node, trees.Branch):
        by_index = node.kind in ("tuple", "namedtuple")
        for index, (name, child) in enumerate(zip(node.names, node.children, strict=True)):
            if name == ".":
                raise SpecError(
                    f"{trees.join(node.path, name)}: HDF5 has no place for the key '.'; rename it"
                )
            yield from _walk(child, f"{path}/{index_name(index) if by_index else name}")
