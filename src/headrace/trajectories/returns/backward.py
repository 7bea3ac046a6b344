"""The recurrence of all returns, from the last step to the first."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.kinds import Doubles, GivenDoubles, Int

# Rows that advance together: each value waits for the one before it, and meanwhile the other rows are computed.
_TOGETHER = 8


def run_backward(values: Doubles, factors: GivenDoubles, steps: Int) -> None:
    """Adds to each value the next one of its row times its factor, beginning at the end of the row.

    A value after a factor of 0 is not read, so NaN does not pass it.

    Args:
        values: float64[rows * steps], read and written.
        factors: float64[rows * steps]; the last of each row is 0.
        steps: length of a row.
    """
    with cython.nogil:
        run_backward_without_lock(values, factors, values.shape[0] // steps, steps)


def run_backward_without_lock(values: Doubles, factors: GivenDoubles, rows: Int, steps: Int) -> None:
    """Does `run_backward` for the first `rows` rows."""
    for group in range((rows + _TOGETHER - 1) // _TOGETHER):
        first: Int = group * _TOGETHER
        for step in range(steps - 1):
            for row in range(first, min(first + _TOGETHER, rows)):
                index: Int = row * steps + steps - 2 - step
                if factors[index] != 0.0:
                    values[index] += factors[index] * values[index + 1]
