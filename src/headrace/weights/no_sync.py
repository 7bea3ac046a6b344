"""A scheme that moves nothing: for policies that never change, or that are kept up to date in another way."""

from __future__ import annotations

from typing import Any


class NoSync:
    """Publishes nothing and receives nothing: the version stays 0. Both ends in one.

    >>> scheme = NoSync()
    >>> scheme.publish({"w": 1.0}), scheme.receiver().read()
    (0, (0, None))
    """

    version = 0

    def publish(self, weights: Any, *, version: int | None = None) -> int:  # noqa: ARG002 - the scheme's interface
        """Does nothing and returns 0."""
        return 0

    def receiver(self) -> NoSync:
        """A receiving end that never has anything new."""
        return NoSync()

    def read(self) -> tuple[int, None]:
        """Version 0 and no weights."""
        return 0, None

    def close(self) -> None:
        """Does nothing."""
