"""Identity of the present boot: mapped files keep the writes of a killed process only until the machine fails."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path

_LINUX = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> int:
    """Returns a number of 126 bits that differs after each boot; 0 if the system does not report a boot id.

    >>> boot_id() == boot_id()
    True
    """
    with suppress(OSError, ValueError):
        return uuid.UUID(_LINUX.read_text().strip()).int >> 2
    return 0
