"""The state of a table at one instant, for checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from headrace.tables.description.table import Table
from headrace.tables.item_memory import ItemMemory
from headrace.tables.item_state import ItemState

# Counts of a table since it was made.
COUNTS = ("inserts", "samples", "deletes", "updates", "ignored_updates", "ignored_deletes")


SomeItems = TypeVar("SomeItems", ItemState, ItemMemory)
"""A copy of items to be saved, or items that were loaded, in the arrays that their table will use."""


@dataclass
class TableState(Generic[SomeItems]):
    """A table with all that it needs to continue, without pending items and tickets.

    Attributes:
        table: its description, with the settings of now.
        counts: int, by the names `COUNTS`.
        items: its items.
    """

    table: Table
    counts: dict[str, int]
    items: SomeItems
