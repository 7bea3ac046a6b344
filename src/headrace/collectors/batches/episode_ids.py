"""Numbers for episodes."""

# Rules: collectors CB5

from __future__ import annotations


class EpisodeIds:
    """Gives out numbers of episodes, each once. One thread at a time may use it.

    Attributes:
        next_id: the next number.

    >>> ids = EpisodeIds()
    >>> ids.take(2), ids.take(1)
    (0, 2)
    """

    def __init__(self) -> None:
        self.next_id = 0

    def take(self, count: int) -> int:
        """Returns the first of `count` numbers that nothing else gets."""
        first = self.next_id
        self.next_id += count
        return first
