"""Versions of installed libraries, without importing them."""

from __future__ import annotations

import importlib.metadata
from contextlib import suppress


def installed_version(name: str) -> str:
    """Returns the version of an installed distribution; empty if it is not installed.

    >>> installed_version("no-such-distribution")
    ''
    """
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(name)
    return ""
