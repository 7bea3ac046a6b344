"""Plans the windows that a rule makes of the rows of one lane, by their numbers alone.

It is the closed form of `trajectories.windows`, applied row by row. An episode of T transitions has T + 1 rows when its
final row is known; rules of length 1 count only the T transitions.
"""

# Rules: trajectories W1, W5, W6

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

from headrace.tables.description.window_rule import WindowRule

if not cython.compiled:
    from headrace.kernels.kinds import Bool, GivenBytes, GivenLongs, Int
    from headrace.tables.items.layout import CONTINUE, DROP, LAST, TILE, WHOLE


class WindowPlan:
    """Decides the windows of one rule, within episodes or, with CONTINUE, in streams over their ends.

    Args:
        rule: in numbers.

    Attributes:
        length, stride, end, lookahead: see `WindowRule`.
        total: number of windows of the last call.

    >>> import headrace as hr
    >>> plan = WindowPlan(hr.ItemRule("t", length=2).window_rule)
    >>> plan.windows_of(np.arange(4), np.array([False, False, False, True])).tolist()
    [[1, 0, 2], [2, 1, 3], [3, 2, 4]]
    """

    def __init__(self, rule: WindowRule) -> None:
        self.length, self.stride, self.end, self.lookahead = rule
        if self.end == CONTINUE and self.length == self.stride == 1:
            self.end = DROP  # Each transition, whatever episode it is in.
        self.total = 0
        self._start, self._stop, self._off_stride = 0, -1, -1
        self.spans = np.empty((0, 3), np.int64)

    def windows_of(self, numbers: GivenLongs, final: GivenBytes) -> NDArray[np.int64]:
        """Lists the windows that some rows complete, in the order in which they are made.

        Args:
            numbers: int64[n], the number of each row in its episode, or in the stream of its lane.
            final: bool[n], whether it is the final row of its episode.

        Returns:
            int64[M, 3]: the index in `numbers` of the row that completes the window; the number of its first row; and
            the number after that of the last row that it keeps.
        """
        most: Int = 0
        for place in range(numbers.shape[0]):
            most += 1
            if final[place]:
                most += self.most_of_end(numbers[place] + 1)
        spans = np.empty((most, 3), np.int64)
        self.spans = spans
        self.total = 0
        for place in range(numbers.shape[0]):
            if self.completes(numbers[place], final[place]):
                self._note(place, numbers[place] - self.length - self.lookahead + 1, numbers[place])
            if final[place]:
                self.begin_end(numbers[place], True)
                start = self.next_start()
                while start >= 0:
                    self._note(place, start, min(numbers[place], start + self.length + self.lookahead - 1))
                    start = self.next_start()
        return spans[: self.total]

    def stream_start(self, rows: Int) -> Int:
        """Returns the number of the first row of the next window, in a stream of `rows` rows."""
        return 0 if rows < self.length else ((rows - self.length) // self.stride + 1) * self.stride

    # ---- in kernels --------------------------------------------------------------------------------------------------

    def most_of_end(self, rows: Int) -> Int:
        """Upper bound of the number of windows that the end of an episode of `rows` rows completes."""
        return min(self.length + self.lookahead, rows) + 2

    def completes(self, number: Int, is_final: Bool) -> Bool:
        """Whether a row completes a regular window, its lookahead included."""
        start = number - (self.length - 1) - self.lookahead
        # Divisions take most of the time here, and most windows begin at every step.
        if start < 0 or self.end == WHOLE or (self.stride != 1 and start % self.stride != 0):
            return False
        # No transition starts at a final row (trajectories W6).
        return not (is_final and self.length == 1 and self.lookahead == 0)

    def begin_end(self, last: Int, is_final: Bool) -> None:
        """Finds the windows that remain when an episode is over; `next_start` then lists them.

        Args:
            last: number of its last row.
            is_final: whether that is a final row.
        """
        self._off_stride = -1
        if self.end == WHOLE:
            self._start, self._stop = 0, 0 if last < self.length else -1
            return
        rows: Int = last if self.length == 1 and is_final else last + 1
        regular = rows - self.length
        # The first of the windows whose lookahead the end of the episode cut short.
        start: Int = max(0, last - (self.length - 1) - self.lookahead + 1)
        self._start = (start + self.stride - 1) // self.stride * self.stride
        self._stop = self._last_start(regular, rows)
        if self.end == LAST and regular >= 0 and regular % self.stride != 0:
            self._off_stride = regular

    def _last_start(self, regular: Int, rows: Int) -> Int:
        """Returns the last row at which a window on the stride may begin; `rows` of the episode count."""
        if self.end == CONTINUE:
            return -1
        if self.end == TILE:
            return rows - 1
        if self.end == DROP or self.end == LAST or (regular >= 0 and regular % self.stride == 0):
            return regular
        # One window more holds the rows after the last regular one.
        return min(rows - 1, max(regular, -1) + self.stride)

    def next_start(self) -> Int:
        """Returns the number of the first row of the next window; -1 after the last."""
        start = self._start
        if start <= self._stop:
            self._start = start + self.stride
            return start
        start, self._off_stride = self._off_stride, -1
        return start

    def _note(self, place: Int, start: Int, last: Int) -> None:
        self.spans[self.total, 0] = place
        self.spans[self.total, 1] = start
        self.spans[self.total, 2] = last + 1
        self.total += 1
