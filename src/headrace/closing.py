"""Objects that a `with` block closes."""

from __future__ import annotations

from typing import Self


class Closing:
    """Is closed at the end of its `with` block, after an error too.

    >>> class Door(Closing):
    ...     def close(self) -> None:
    ...         print("closed")
    >>> with Door():
    ...     print("open")
    open
    closed
    """

    __slots__ = ()

    def close(self) -> None:
        """Closes it; each class has its own."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
