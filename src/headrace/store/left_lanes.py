"""The state in which a block of lanes has given its pages back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.store.commit import Lanes
from headrace.store.layout import LaneArrays


@dataclass(frozen=True, eq=False)
class LeftLanes:
    """Lanes that a later block may go on with, in the midst of their episodes (`LaneBlock.resume`).

    The store keeps it until another block takes the rest of the page. So a weak reference shows whether it is of use.

    Attributes:
        reach: the pages in reach of later windows, each with the number of its first step.
        final_page: in which final rows beside the lanes stand; -1: there is none.
        arrays: copies.
        row, last, committed: see `Lanes`.
    """

    reach: Sequence[tuple[int, int]]
    final_page: int
    arrays: LaneArrays
    row: int
    last: int
    committed: int

    @property
    def count(self) -> int:
        """Number of lanes."""
        return len(self.arrays.steps)

    @classmethod
    def of(
        cls, reach: Sequence[tuple[int, int]], final_page: int, arrays: LaneArrays, kernel: Lanes
    ) -> LeftLanes:
        """Copies the state of a block; see above."""
        return cls(tuple(reach), final_page, arrays.copies(), kernel.row, kernel.last, kernel.committed)

    def restore(self, arrays: LaneArrays, kernel: Lanes) -> None:
        """Writes the state into another block, save the end of its page."""
        arrays.write(self.arrays)
        kernel.row, kernel.last, kernel.committed = self.row, self.last, self.committed
