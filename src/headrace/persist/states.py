"""The state of a replay at one instant, without its rows, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol

from headrace.spec import Signature
from headrace.store.pages.held_pages import HeldPages
from headrace.store.store import Store
from headrace.tables.description.table import Table
from headrace.tables.distribution import SkippedKeys
from headrace.tables.item_state import ItemState
from headrace.tables.table_state import SomeItems, TableState


@dataclass
class ReplayState(Generic[SomeItems]):
    """A replay at one instant, without its rows.

    Attributes:
        signature, capacity: of its store.
        tables: with their items.
        next_key, next_episode: never used so far.
        given: columns that final rows hold values of.
        paddings: table to column to the values of padded rows there, as plain numbers and lists.
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


class Saveable(Protocol):
    """A replay that can be saved: its rows, and a copy of the rest."""

    store: Store

    def descriptions(self) -> Sequence[Table]:
        """Returns the tables with their present settings."""

    def copy_state(self, held: HeldPages) -> ReplayState[ItemState]:
        """Copies the state of this instant, and makes `held` hold the pages in use, with a copy of their words."""
