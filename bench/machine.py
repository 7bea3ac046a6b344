"""What stands in the header: machine, versions, date."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_PACKAGES = ("headrace", "numpy", "gymnasium", "torch")


def describe() -> dict[str, Any]:
    """Machine, cores this process may use, memory, and versions."""
    return {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "load": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), None)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
