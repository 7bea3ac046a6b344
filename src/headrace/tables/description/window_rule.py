"""A rule as numbers, as kernels read it."""

from __future__ import annotations

from typing import NamedTuple

from headrace.ends import EndOfEpisode

# EndOfEpisode by number.
END_NUMBERS = {end: number for number, end in enumerate(EndOfEpisode)}
DROP, TRUNCATE, PAD, TILE, LAST, CONTINUE = (END_NUMBERS[end] for end in EndOfEpisode)
# The whole episode is one window if it has at most `length` rows, and none otherwise.
WHOLE = len(END_NUMBERS)
# In place of the number of an end: the source of steps selects each window (`replay/intake/selection.py`).
SELECTED = WHOLE + 1


class WindowRule(NamedTuple):
    """A rule, as numbers.

    Attributes:
        length: rows of a window.
        stride: rows from the start of one window to the next.
        end: the number of an `EndOfEpisode`, WHOLE or SELECTED.
        lookahead: rows after the window that must be there too, or the end of the episode.
    """

    length: int
    stride: int
    end: int
    lookahead: int
