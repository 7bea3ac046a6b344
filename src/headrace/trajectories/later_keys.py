"""Keys of items that a server makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload


class LaterKeys(Sequence[int]):
    """Keys of items that a server makes, so a call need not wait for them. A look at them does; then it is like a list.

    Args:
        known: returns them, and waits for the server.

    >>> keys = LaterKeys(lambda: [5, 6])
    >>> keys == [5, 6], len(keys), keys[-1], [4] + keys
    (True, 2, 6, [4, 5, 6])
    """

    def __init__(self, known: Callable[[], list[int]]) -> None:
        self._known: Callable[[], list[int]] | None = known
        self._keys: list[int] = []

    def _list(self) -> list[int]:
        if self._known is not None:
            self._keys = self._known()
            self._known = None
        return self._keys

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._list()[index]

    def __add__(self, other: Sequence[int]) -> list[int]:
        return [*self._list(), *other]

    def __radd__(self, other: Sequence[int]) -> list[int]:
        return [*other, *self._list()]

    def __eq__(self, other: object) -> bool:
        return self._list() == (other._list() if isinstance(other, LaterKeys) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._list()) if self._known is None else "<keys that the server has not told of yet>"
