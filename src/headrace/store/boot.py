"""Which run of the operating system this is: mapped files keep what a killed process wrote, until the machine fails."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> int:
    """A number of 126 bits that is another after each start of the machine; 0 where the system does not tell.

    >>> boot_id() == boot_id()
    True
    """
    with suppress(OSError, ValueError):
        return uuid.UUID(_LINUX.read_text().strip()).int >> 2
    return 0
