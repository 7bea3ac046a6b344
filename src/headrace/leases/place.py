"""Where the rows of a store lie in an arena, for a process that maps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from numpy.typing import NDArray

from headrace.spec import Signature
from headrace.store.layout import columns, plan_rows
from headrace.store.memory.arena import Arena

if TYPE_CHECKING:
    from headrace.store.store import Store

Columns: TypeAlias = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class RowsPlace:
    """Where the columns of a store lie in the memory whose descriptor comes along.

    Attributes:
        signature: of one step.
        nbytes: of that memory, which holds the values of rows and nothing else.
        num_pages, page_rows: of the store.
    """

    signature: Signature
    nbytes: int
    num_pages: int
    page_rows: int

    @classmethod
    def of(cls, store: Store) -> RowsPlace:
        """The place of a store's rows."""
        return cls(
            signature=store.signature,
            nbytes=store.arena.nbytes,
            num_pages=store.num_pages,
            page_rows=store.arrays.page_rows,
        )

    def columns(self, descriptor: int) -> dict[str, NDArray[Any]]:
        """Maps the arena, whose descriptor is taken over; returns each column's array, `dtype[rows, ...]`."""
        arena = Arena.attach(descriptor, self.nbytes)
        arrays = plan_rows(self.signature, self.num_pages, self.page_rows).arrays(arena)
        return columns(arrays, self.signature)
