"""What becomes of the rows at the end of an episode: the one name that replay and trajectories share."""

from __future__ import annotations

import enum


class EndOfEpisode(enum.Enum):
    """Treatment of the rows at the end of an episode that fill no regular window.

    >>> EndOfEpisode.PAD
    <EndOfEpisode.PAD: 'pad'>
    """

    DROP = "drop"
    """Only regular windows; what is left over is dropped and counted."""
    TRUNCATE = "truncate"
    """The left-over rows make one shorter window."""
    PAD = "pad"
    """The left-over rows make one window that is filled up with invented rows."""
    TILE = "tile"
    """A window starts at every stride down to the last row, each filled up with invented rows."""
    LAST = "last"
    """One more window of full length that ends on the last row, off stride."""
    CONTINUE = "continue"
    """Windows run on over the ends of episodes; only the end of the stream drops rows."""
