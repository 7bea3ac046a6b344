"""Treatment of the rows at the end of an episode, shared by replay and trajectories."""

from __future__ import annotations

import enum


class EndOfEpisode(enum.Enum):
    """Treatment of the rows at the end of an episode that fill no regular window.

    >>> EndOfEpisode.PAD
    <EndOfEpisode.PAD: 'pad'>
    """

    DROP = "drop"
    """Only regular windows; left-over rows are dropped and counted."""
    TRUNCATE = "truncate"
    """The left-over rows make one shorter window."""
    PAD = "pad"
    """The left-over rows make one window, padded to full length."""
    TILE = "tile"
    """A window starts at every stride up to the last row, each padded to full length."""
    LAST = "last"
    """One more window of full length that ends on the last row, off stride."""
    CONTINUE = "continue"
    """Windows cross the ends of episodes; only the end of the stream drops rows."""
