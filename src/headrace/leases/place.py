"""The place of a store's rows in an arena, for a process that maps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from headrace.spec import Signature
from headrace.store.layout import columns, plan_rows
from headrace.store.memory.arena import Arena

if TYPE_CHECKING:
    from headrace.store.store import Store


@dataclass(frozen=True, kw_only=True)
class RowsPlace:
    """The place of a store's columns in memory, whose descriptor is sent with it.

    Attributes:
        signature: of one step.
        nbytes: of the memory, which holds the values of rows and nothing else.
        num_pages, page_rows: of the store.
    """

    signature: Signature
    nbytes: int
    num_pages: int
    page_rows: int

    @classmethod
    def of(cls, store: Store) -> RowsPlace:
        """Returns the place of a store's rows."""
        return cls(
            signature=store.signature,
            nbytes=store.arena.nbytes,
            num_pages=store.num_pages,
            page_rows=store.arrays.page_rows,
        )

    def columns(self, descriptor: int) -> dict[str, NDArray[Any]]:
        """Maps the arena and closes the descriptor; returns each column's array, `dtype[rows, ...]`."""
        arena = Arena.attach(descriptor, self.nbytes)
        arrays = plan_rows(self.signature, self.num_pages, self.page_rows).arrays(arena)
        return columns(arrays, self.signature)
