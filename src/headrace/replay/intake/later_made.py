"""Items of which a server has not told yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

from headrace.replay.intake.writer_like import Made


class LaterMade(Sequence[Made]):
    """Items that a server makes; a look at them waits until it has told of them.

    Args:
        wait: returns when `is_known`; called with this object.

    Attributes:
        found: the items told of so far.
        is_known: whether these are all.

    >>> def wait(made):
    ...     made.found.append((0, range(5, 7)))
    ...     made.is_known = True
    >>> made = LaterMade(wait)
    >>> made.is_known, len(made), made[0]
    (False, 1, (0, range(5, 7)))
    """

    def __init__(self, wait: Callable[[LaterMade], None]) -> None:
        self.found: list[Made] = []
        self.is_known = False
        self._wait = wait

    def known(self) -> list[Made]:
        """Returns all of them, as soon as they are known.

        Raises:
            DeadlineExceeded, Disconnected, Closed: the server did not tell.
        """
        if not self.is_known:
            self._wait(self)
        return self.found

    def __len__(self) -> int:
        return len(self.known())

    @overload
    def __getitem__(self, index: int) -> Made: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Made]: ...

    def __getitem__(self, index: int | slice) -> Made | Sequence[Made]:
        return self.known()[index]

    def __eq__(self, other: object) -> bool:
        return self.known() == (other.known() if isinstance(other, LaterMade) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self.found) if self.is_known else "<items that the server has not told of yet>"
