"""A replay and its tables at one instant: what a checkpoint holds beside rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

from headrace.spec import Signature
from headrace.tables.distribution import SkippedKeys
from headrace.tables.table_state import SomeItems, TableState


@dataclass
class ReplayState(Generic[SomeItems]):
    """A replay at one instant, without its rows.

    Attributes:
        signature, capacity: of its store.
        tables: with their items.
        next_key, next_episode: never used so far.
        given: columns that final rows are given.
        paddings: table to column to what invented rows hold there, as plain numbers and lists.
        generator: state of the random generator's bits, as NumPy has it.
        skipped_keys: that no item was given.
    """

    signature: Signature
    capacity: int | None
    tables: list[TableState[SomeItems]]
    next_key: int
    next_episode: int
    given: frozenset[str]
    paddings: Mapping[str, Mapping[str, Any]]
    generator: Any
    skipped_keys: SkippedKeys
