"""Where each array of an episode lies in its HDF5 group."""

# Rules: datasets K6, K10

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace import trees
from headrace.datasets.exporting.structure import Structure
from headrace.datasets.exporting.tree_json import node_from_json
from headrace.errors import SpecError

# Extras are kept among the infos, which is where Minari looks for what it does not know.
EXTRAS = "infos/extras"
_SPACED_PARTS = ("observations", "actions")


@dataclass(frozen=True, slots=True)
class Layout:
    """The groups and datasets of one episode; every episode of a dataset has the same.

    Attributes:
        groups: paths of the groups, each after the one it lies in.
        datasets: the path of each column's dataset, by the column's name.
        observations: the tree of the observations, with columns' names at the leaves.
        actions: as `observations`.
    """

    groups: tuple[str, ...]
    datasets: dict[str, str]
    observations: trees.Node
    actions: trees.Node


def layout_of(structure: Structure) -> Layout:
    """The layout of episodes of this structure.

    Raises:
        SpecError: a part that Minari has no place for.
    """
    described = structure.to_json()
    parts = {part: node_from_json(tree, lambda _, path: path, part) for part, tree in described.items()}
    for part in _SPACED_PARTS:
        _refuse_none(parts[part])
    infos, extras = parts["infos"], parts["extras"]
    if isinstance(infos, trees.Branch) and "extras" in infos.names:
        raise SpecError(f"{EXTRAS}: this name is where Minari datasets keep an episode's extras; rename it")
    has_extras = isinstance(extras, trees.Branch) and bool(extras.names)
    groups: list[str] = []
    datasets: dict[str, str] = {}
    for part, node in parts.items():
        if part != "extras" or has_extras:
            for path, found in _walk(node, EXTRAS if part == "extras" else part):
                if isinstance(found, trees.Leaf):
                    datasets[found.value] = path
                else:
                    groups.append(path)
    # A group is named after all that it lies in, and `infos` comes before its extras.
    return Layout(tuple(sorted(groups)), datasets, parts["observations"], parts["actions"])


def index_name(index: int) -> str:
    """The name of one place of a tuple in HDF5."""
    return f"_index_{index}"


def _walk(node: trees.Node, path: str) -> Iterator[tuple[str, trees.Node]]:
    if isinstance(node, trees.Branch) and node.kind == "none":
        return  # It holds nothing; the structure in the metadata says that it was there.
    yield path, node
    if isinstance(node, trees.Branch):
        by_index = node.kind in ("tuple", "namedtuple")
        for index, (name, child) in enumerate(zip(node.names, node.children, strict=True)):
            if name == ".":
                raise SpecError(
                    f"{trees.join(node.path, name)}: HDF5 has no place for the key '.'; rename it"
                )
            yield from _walk(child, f"{path}/{index_name(index) if by_index else name}")


def _refuse_none(node: trees.Node) -> None:
    if isinstance(node, trees.Branch):
        if node.kind == "none":
            raise SpecError(f"{node.path}: expected an array, got None, for which there is no space")
        for child in node.children:
            _refuse_none(child)
