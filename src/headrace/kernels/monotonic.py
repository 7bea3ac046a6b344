"""The present time for compiled loops. In C, in `monotonic.pxd`, with its twin in Python here."""

from __future__ import annotations

import time


def monotonic() -> float:
    """Returns `time.monotonic()`, in seconds."""
    return time.monotonic()
