"""A replay and its tables at one instant: what a checkpoint holds beside rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.replay.distribution import SkippedKeys
from headrace.replay.item_memory import ItemMemory
from headrace.replay.item_state import ItemState
from headrace.replay.table import Table
from headrace.spec import Signature

# What a table has counted since it was made.
COUNTS = ("inserts", "samples", "deletes", "updates", "ignored_updates", "ignored_deletes")


SomeItems = TypeVar("SomeItems", ItemState, ItemMemory)
"""A copy of items to be saved, or items that were loaded, in the arrays that their table will use."""


@dataclass
class TableState(Generic[SomeItems]):
    """A table with all that it needs to go on, apart from what waits.

    Attributes:
        table: its description, with the settings of now.
        counts: int, by the names `COUNTS`.
        items: its items.
    """

    table: Table
    counts: dict[str, int]
    items: SomeItems


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
