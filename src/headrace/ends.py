"""Ends of episodes: how environments go on, and which windows the last rows fill."""

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


class Autoreset(enum.StrEnum):
    """Behaviour of a vector environment when an episode ends.

    >>> Autoreset.parse("next_step")
    <Autoreset.NEXT_STEP: 'next_step'>
    """

    DISABLED = "disabled"
    SAME_STEP = "same_step"
    NEXT_STEP = "next_step"

    # Rules: collectors CE4
    @classmethod
    def parse(cls, mode: str | enum.Enum) -> Autoreset:
        """Returns the mode for its name, or for a member of gymnasium's `AutoresetMode` or its value ("NextStep").

        Raises:
            ValueError: not an autoreset mode.
        """
        name = mode.value if isinstance(mode, enum.Enum) else mode
        for member in cls:
            if isinstance(name, str) and name.replace("_", "").lower() == member.value.replace("_", ""):
                return member
        raise ValueError(
            f'autoreset: expected "disabled", "same_step", "next_step" or a gymnasium AutoresetMode, got {mode!r}; '
            'vector environments of gymnasium declare theirs in envs.metadata["autoreset_mode"]'
        )
