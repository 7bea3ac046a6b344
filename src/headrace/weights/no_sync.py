"""A scheme without transfer, for policies that never change or are updated in another way."""

from __future__ import annotations

from typing import Any


class NoSync:
    """Publisher and receiver that transfer nothing: the version stays 0.

    >>> scheme = NoSync()
    >>> scheme.publish({"w": 1.0}), scheme.receiver().read()
    (0, (0, None))
    """

    version = 0

    def publish(self, weights: Any, *, version: int | None = None) -> int:  # noqa: ARG002 - the scheme's interface
        """Does nothing and returns 0."""
        return 0

    def receiver(self) -> NoSync:
        """Returns this object, a receiver that never has a newer set."""
        return NoSync()

    def read(self) -> tuple[int, None]:
        """Returns version 0 and no weights."""
        return 0, None

    def close(self) -> None:
        """Does nothing."""
