"""Conversion of a NumPy sample to the learner's arrays."""

from __future__ import annotations

from typing import Any, Protocol


class Conversion(Protocol):
    """Conversion in two steps, so that a copy to a device runs while the learner still uses the batch before."""

    def convert(self, sample: Any) -> Any:
        """Starts the conversion in the thread that draws. The sample belongs to the conversion from here on."""

    def deliver(self, converted: Any) -> Any:
        """Finishes the conversion in the learner's thread and returns a batch that is ready to use."""
