"""n-step returns of stored rows: discounted sums of rewards, and the rows of the next observations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cython
import numpy as np

from headrace.spec import ArraySpec
from headrace.store.records import record_layout

if not cython.compiled:
    from headrace.kernels.hints import prefetch
    from headrace.kernels.kinds import Bool, Doubles, Float, GivenBytes, Int, Longs
    from headrace.store.layout import AHEAD, FINAL, LANES

    def number_at(records: GivenBytes, place: Int, kind: Int) -> Float:
        """Reads a number from bytes; the Python twin of the C function in `returns.pxd`."""
        dtype = np.dtype(KINDS[kind])
        return float(records[place : place + dtype.itemsize].view(dtype)[0])


if TYPE_CHECKING:
    from headrace.store.store import Store

# Rows to prefetch for one return. The processor fetches the following rows of a longer return by itself, and most
# episodes end before a return of thousands of steps.
_ASKED_STEPS = 16
# Of numbers in records. A bool is read as a byte.
KINDS = ("f4", "f8", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


def kind_of(spec: ArraySpec) -> int:
    """Returns the index in `KINDS` of a column's dtype; -1 if no return can be computed from it."""
    name = "u1" if spec.dtype == np.bool_ else f"{spec.dtype.kind}{spec.dtype.itemsize}"
    return KINDS.index(name) if name in KINDS else -1


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype of sums of rewards: the dtype of the rewards, if they are floats."""
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


class Returns:
    """The n-step transitions from rows of a store.

    Args:
        store: its signature was accepted by `sources.check_transition`.
        n_step: maximum number of transitions summed.
        gamma: the discount of one step.
    """

    # Rules: trajectories A13

    def __init__(self, store: Store, n_step: Int, gamma: Float) -> None:
        layout, specs = record_layout(store.signature), store.signature.columns
        self.window = store.window
        self.records, self.nbytes = store.records, layout.nbytes
        self.reward, self.reward_kind = layout.offsets["reward"], kind_of(specs["reward"])
        self.terminated, self.terminated_kind = layout.offsets["terminated"], kind_of(specs["terminated"])
        self.n_step, self.gamma = n_step, gamma

    def add_up(self, rows: Longs, sums: Doubles, counts: Longs, found: Longs) -> int:
        """Computes the n-step transition from each row.

        Args:
            rows: int64[M]; -1 for padding.
            sums: float64[2 * M], written: the returns, then the discounts of their bootstrap values.
            counts: int64[M], written: the number of transitions summed.
            found: int64[2 * M], written: the row of the last transition, or -1; then the row of the next observation.

        Returns:
            The number of counts that are 0.
        """
        with cython.nogil:
            missing = self.add_up_into(rows, rows.shape[0], sums, counts, found, 0)
        return missing

    def add_up_into(
        self, rows: Longs, count: Int, sums: Doubles, counts: Longs, found: Longs, last: Int
    ) -> Int:
        """Does `add_up` for the first `count` rows, and writes the rows that it finds to `found[last:]`."""
        missing: Int = 0
        for index in range(min(AHEAD, count)):
            self._ask_for(rows[index])
        for index in range(count):
            if index + AHEAD < count:
                self._ask_for(rows[index + AHEAD])
            row: Int = rows[index]
            newest: Int = -1
            total: Float = 0.0
            scale: Float = 1.0
            used: Int = 0
            ends: Bool = False
            while row >= 0 and used < self.n_step and not cython.cast(Int, self.window.steps[row]) & FINAL:
                after: Int = self.window.follow(row, 1)
                ends_here = self._ends(row)
                if after < 0 and not ends_here:
                    break
                ends = ends_here
                total += scale * self._reward_of(row)
                scale *= self.gamma
                used += 1
                newest = row
                if after < 0:
                    break  # Ended without a final observation: nothing is bootstrapped, the reward counts.
                row = after
            if used == 0:
                missing += 1
                scale = 0.0
            elif ends:
                scale = 0.0
            sums[index], sums[count + index] = total, scale
            counts[index] = used
            found[last + index], found[last + count + index] = newest, row
        return missing

    def _ask_for(self, row: Int) -> None:
        """Prefetches the words and the records of a transition: each would be a separate cache miss."""
        if row < 0:
            return
        page = cython.cast(cython.uint, row) // cython.cast(cython.uint, self.window.page_rows)
        lanes: Int = self.window.pages[page, LANES]
        for _ in range(min(self.n_step, _ASKED_STEPS)):
            prefetch(self.window.steps, row)
            prefetch(self.records, row * self.nbytes + self.reward)
            row += lanes
        prefetch(self.window.steps, row)

    def _reward_of(self, row: Int) -> Float:
        return number_at(self.records, row * self.nbytes + self.reward, self.reward_kind)

    def _ends(self, row: Int) -> Bool:
        return number_at(self.records, row * self.nbytes + self.terminated, self.terminated_kind) != 0.0
