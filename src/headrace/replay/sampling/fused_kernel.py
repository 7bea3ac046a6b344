"""The kernel of fused batches (`replay.sampling.fused`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython
import numpy as np

from headrace.store.records import record_layout

if not cython.compiled:
    from headrace.kernels.hints import move
    from headrace.kernels.kinds import Bool, Bytes, Int, LongTable
    from headrace.store.copying import SHORT, copy_fields
    from headrace.tables.items.drawing import draw_all
    from headrace.tables.items.items import Items
    from headrace.tables.items.layout import FLAGS, HAS_SEQUENCES, LOOKAHEAD, PADDED, REAL, ROW, STREAM
    from headrace.views.returns import Returns

    # The words of a window: where its offsets begin and how many there are; whether its columns are known only after
    # acting; where its row numbers begin among all of them, and those of the rows from which it looks; whether it looks
    # ahead of these.
    BEGIN, OFFSETS, ACTING_GIVES, PLACE, STARTS, LOOKS_AHEAD = range(6)
    WINDOW_WORDS = 6
    # The words of a move out of the room to work in, in bytes.
    TO, FROM, NBYTES = range(3)
    MOVE_WORDS = 3
    # Results of `sample` that mean that nothing was drawn.
    OTHER_WINDOWS, PAGES_FREED = -1, -2

if TYPE_CHECKING:
    from headrace.replay.sampling.fused_layout import FusedLayout
    from headrace.store.store import Store


class FusedKernel:
    """Draws the items of a batch, finds their rows and copies the records, for batches of one shape.

    It has one scratch buffer, because it is called with the replay's lock held.

    Args:
        store: of the rows.
        layout: of the batches.
        returns: computes n-step transitions; None if no view shows them.

    Attributes:
        ahead: number of unknown values after their rows, in the latest batch.
    """

    def __init__(self, store: Store, layout: FusedLayout, returns: Returns | None) -> None:
        self.ahead = 0
        self.window = store.window
        self.returns = returns
        self.batch, self.length = layout.batch, layout.length
        self.has_axis, self.has_wide = layout.has_axis, layout.has_wide
        self.windows, self.offsets = layout.windows, layout.offsets
        self.records, self.record_nbytes = store.records, record_layout(store.signature).nbytes
        self.fields, self.moves, self.row_moves = layout.fields, layout.moves, layout.row_moves
        scratch = np.empty(layout.scratch.itemsize, np.uint8)
        parts = np.ndarray((), layout.scratch, scratch)
        self.scratch = scratch
        self.keys, self.integers, self.starts = parts["keys"], parts["integers"], parts["integers"][ROW]
        self.probabilities, self.priorities = parts["probabilities"], parts["priorities"]
        self.sums, self.singles, self.counts = parts["sums"], parts["singles"], parts["sum:n"]
        self.found, self.known = parts["found"], parts["known"]

    def sample(self, items: Items, out: Bytes) -> int:
        """Draws the items, finds their rows and copies the records.

        Args:
            items: of the table.
            out: uint8[layout.nbytes], written: the fields of `layout.block`. Row numbers are written only if a value is
                unknown or a column is wide.

        Returns:
            The number of unknown values; or, if nothing was drawn: OTHER_WINDOWS, if the windows of the items differ
            from the layout; PAGES_FREED, if windows might still lead into freed pages.
        """
        if self.window.freed[self.window.freed.shape[0] - 1]:
            return PAGES_FREED
        if not self._fits(items):
            return OTHER_WINDOWS
        if out.shape[0] <= SHORT:
            return self._sample(items, out)
        with cython.nogil:
            missing = self._sample(items, out)
        return missing

    def _fits(self, items: Items) -> Bool:
        """Whether the layout fits: the length of all items, and their presentation."""
        return (
            items.windows.shape[0] == 0
            and items.common_window[REAL] == self.length
            and items.common_window[PADDED] == 0
            and items.common_window[LOOKAHEAD] != STREAM
            and (items.ring[FLAGS] & HAS_SEQUENCES) == self.has_axis
        )

    def _sample(self, items: Items, out: Bytes) -> Int:
        draw_all(items, self.keys, self.integers, self.probabilities, self.priorities)
        self.window.rows_of_one_length(self.starts, self.batch, self.length, self.found, 0)
        self.ahead = 0
        missing: Int = 0
        if self.returns is not None:
            missing = self._add_up(self.returns)
        missing += self._resolve()
        copy_fields(self.records, self.record_nbytes, self.found, self.fields, out)
        self._move(self.moves, out)
        if missing > 0 or self.has_wide:
            self._move(self.row_moves, out)
        return missing

    def _add_up(self, returns: Returns) -> Int:
        count = self.batch * self.length
        missing: Int = returns.add_up_into(self.found, count, self.sums, self.counts, self.found, count)
        for place in range(self.singles.shape[0]):
            self.singles[place] = self.sums[place]
        self.ahead += missing
        return missing

    def _resolve(self) -> Int:
        count = self.batch * self.length
        missing: Int = 0
        for number in range(self.windows.shape[0]):
            absent = self.window.resolve_into(
                self.found,
                self.windows[number, STARTS],
                count,
                self.offsets,
                self.windows[number, BEGIN],
                self.windows[number, OFFSETS],
                self.windows[number, ACTING_GIVES] != 0,
                self.found,
                self.known,
                self.windows[number, PLACE],
            )
            missing += absent
            self.ahead += absent * self.windows[number, LOOKS_AHEAD]
        return missing

    def _move(self, moves: LongTable, out: Bytes) -> None:
        for number in range(moves.shape[0]):
            move(out, moves[number, TO], self.scratch, moves[number, FROM], moves[number, NBYTES])
