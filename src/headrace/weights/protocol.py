"""Interfaces of publishers and receivers of weights."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class WeightReceiver(Protocol):
    """Receiver of weights."""

    @property
    def version(self) -> int:
        """Version of the newest set; cheap enough to read at every step."""
        ...

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest complete set, and the set. The arrays belong to the caller."""
        ...

    def close(self) -> None:
        """Releases the receiver's memory. Further calls do nothing."""
        ...


@runtime_checkable
class WeightScheme(Protocol):
    """Publisher of weights."""

    @property
    def version(self) -> int:
        """Version of the newest set."""
        ...

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set and returns its version. After the call the caller may change its arrays.

        Args:
            weights: a pytree of arrays with the names, shapes and dtypes of the first.
            version: its number, larger than the last one; None for the next number.
        """
        ...

    def receiver(self) -> WeightReceiver:
        """Returns a receiver, which can be sent to another process."""
        ...

    def close(self) -> None:
        """Ends publishing. Existing receivers can still read the last set."""
        ...
