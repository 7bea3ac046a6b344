"""Progress of a step writer: counters, and keys not yet returned to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import DeadlineExceeded

if TYPE_CHECKING:
    from headrace.replay.interface import WriterLike

# Items of one step writer that may wait for the rate limiters of its tables, before a call waits too (replay I4).
MAX_PENDING = 1000


class MadeItems:
    """Counts the items that calls make, and tells their keys once.

    Attributes:
        count: of all items.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys: list[int] = []

    def note(self, writer: WriterLike) -> None:
        """Take what the writer made."""
        for _, keys in writer.take_made():
            self.count += len(keys)
            self._keys += keys

    def tell(self, writer: WriterLike, pending: int, timeout: float | None) -> list[int]:
        """Waits if too many items are pending; returns the keys that the caller has not been given yet.

        Args:
            pending: how many items waited before this call.
            timeout: seconds that it may wait.

        Raises:
            DeadlineExceeded: the tables stayed full until the deadline; the next call returns the keys.
        """
        if pending >= MAX_PENDING and writer.pending > pending:
            try:
                writer.wait_pending(MAX_PENDING - 1 + writer.pending - pending, timeout)
            except DeadlineExceeded as error:
                raise DeadlineExceeded(
                    f"{error}. What this call was given was taken: do not give it again",
                    pending=error.pending,
                ) from None
        keys, self._keys = self._keys, []
        return keys
