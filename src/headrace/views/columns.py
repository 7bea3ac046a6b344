"""Columns that views can show: their names, their trees, and when their values are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace import trees
from headrace.errors import SpecError
from headrace.spec import ArraySpec, Signature

# Metadata of every stored row. A column of the signature with the same name takes precedence. No column begins with a
# slash, so the slash tells them apart.
METADATA = {
    "/t": ArraySpec((), np.int64),
    "/episode_id": ArraySpec((), np.int64),
    "/policy_version": ArraySpec((), np.int64),
}
# Columns that are known before acting, whatever final rows hold (views V2). A trailing "_" is a prefix.
_PRE = (
    "observation",
    "state_in_",
    "t",
    "episode_id",
    "policy_version",
    "env_t",
    "fragment_id",
    "env_id",
    "agent_index",
)


def is_pre_by_name(path: str) -> bool:
    """Whether a column of this name is known before acting, whatever final rows hold."""
    # Rules: views V2
    return any(path == pre or path.startswith(pre if pre.endswith("_") else f"{pre}/") for pre in _PRE)


@dataclass(frozen=True)
class Columns:
    """Columns of a store, an episode or a history.

    Args:
        signature: of the columns.
        metadata: further columns, by their names with a slash before.
        final: columns for which final rows were given a value; empty where there are no final rows.
    """

    signature: Signature
    metadata: Mapping[str, ArraySpec]
    final: frozenset[str] = frozenset()

    @classmethod
    def of_store(cls, signature: Signature, final: frozenset[str]) -> Columns:
        """Returns the columns of a store, with the metadata of its rows."""
        return cls(signature, METADATA, final)

    def at(self, name: str, path: str) -> dict[str, str]:
        """Maps the rest of the path, for each column at or under a path, to the column's name.

        Raises:
            SpecError: no such column; the message has the view's name and the columns there are.
        """
        # Rules: views V10
        known = self.signature.columns
        if path in known:
            return {"": path}
        below = {column[len(path) + 1 :]: column for column in known if column.startswith(f"{path}/")}
        if not below and f"/{path}" in self.metadata:
            return {"": f"/{path}"}
        if not below:
            there = ", ".join([*known, *(column[1:] for column in self.metadata)])
            raise SpecError(f"view {name!r}: no column {path!r}; there are {there}")
        return below

    def spec_of(self, column: str) -> ArraySpec:
        """Returns the spec of a column, or of metadata."""
        return self.metadata.get(column) or self.signature.columns[column]

    def is_pre(self, path: str, columns: Mapping[str, str]) -> bool:
        """Whether the columns at this path are known before acting."""
        # Rules: views V2
        return is_pre_by_name(path) or any(column in self.final for column in columns.values())

    def ends_early(self, columns: Mapping[str, str]) -> bool:
        """Whether final rows hold only zeros in these columns, which are not data."""
        # Rules: views V2
        return bool(self.final) and all(
            column in self.signature.columns and column not in self.final for column in columns.values()
        )

    def subtree(self, path: str) -> Signature:
        """Returns the signature of the tree at a path."""
        return Signature(trees.at_path(self.signature.tree, path))

    def builder(self, path: str, columns: Mapping[str, str]) -> Callable[[dict[str, Any]], Any] | None:
        """Returns the function that makes the tree at a path from its leaves; None for one column."""
        return None if "" in columns else self.subtree(path).unflatten
