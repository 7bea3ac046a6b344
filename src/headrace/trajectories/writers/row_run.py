"""Rows of one lane on their way into a replay, as many at once as its writer takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.intake.single_rows import append_transition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headrace.replay.interface import WriterLike


@dataclass(slots=True, eq=False)
class RowRun:
    """Transitions, and final rows behind those with which episodes end.

    Attributes:
        columns: `[rows, ...]`, every column of the signature.
        final: bool[rows], True at final rows.
        stored: number of rows that are stored.
    """

    columns: dict[str, NDArray[Any]]
    final: NDArray[np.bool_]
    stored: int = 0

    def begin_with(self, observation: Mapping[str, Any]) -> None:
        """Replaces these columns of the first row, where they differ."""
        for name, value in observation.items():
            column = self.columns[name]
            if column[0].tobytes() != np.asarray(value, column.dtype).tobytes():
                self.columns[name] = column.copy()
                self.columns[name][0] = value

    def store(self, writer: WriterLike) -> None:
        """Stores all rows.

        Raises:
            StoreFull: no page for the next rows; `stored` tells how many there are.
        """
        while self.stored < len(self.final):
            left = {name: column[self.stored :] for name, column in self.columns.items()}
            self.stored += writer.append_rows(left, self.final[self.stored :])

    def store_one(self, writer: WriterLike, final_columns: Collection[str]) -> None:
        """Stores the only transition and its final row, if there is one, in one call of the writer.

        Raises:
            StoreFull: no page; nothing is stored.
        """
        self.stored = append_transition(writer, self.columns, self.final, final_columns)

    @property
    def episodes(self) -> int:
        """Number of final rows that are stored."""
        return int(np.count_nonzero(self.final[: self.stored]))

    @property
    def transitions(self) -> int:
        """Number of transitions that are stored."""
        return self.stored - self.episodes
