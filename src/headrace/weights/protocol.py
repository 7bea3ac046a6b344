"""The two ends of a way for weights to travel."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class WeightReceiver(Protocol):
    """Where weights arrive."""

    @property
    def version(self) -> int:
        """The number of the newest set; cheap enough to ask at every step."""
        ...

    def read(self) -> tuple[int, Any]:
        """The newest complete set and its number. The arrays are the caller's own."""
        ...

    def close(self) -> None:
        """Gives back what the receiver holds. More calls do nothing."""
        ...


@runtime_checkable
class WeightScheme(Protocol):
    """Where weights are published."""

    @property
    def version(self) -> int:
        """The number of the newest set."""
        ...

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set and returns its number; afterwards the caller may change its arrays.

        Args:
            weights: a pytree of arrays with the names, shapes and dtypes of the first.
            version: its number, larger than the last one. None: the next one.
        """
        ...

    def receiver(self) -> WeightReceiver:
        """A receiving end; it can be sent to another process."""
        ...

    def close(self) -> None:
        """Ends publishing. What was published stays readable at the receivers that exist."""
        ...
