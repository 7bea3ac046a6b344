"""From nothing to a first batch: pip's time, what it leaves on the disk, and a fresh process in that environment.

The environment is made for the measurement: a clone's wheel and its dependencies, without extras. Building and
installing take what pip downloads from its cache, or from where it is told to.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.case import Case
from bench.measure import Goal, Plan, Row, Spread, finish

_ROOT = Path(__file__).parents[1]
_FIRST_BATCH = _ROOT / "bench" / "first_batch.py"
_NUMPY = "import numpy, time; print(time.monotonic())"
# Packages of an environment, each with the bytes of its files.
_SIZES = """
import importlib.metadata as metadata, json
sizes = {}
for package in metadata.distributions():
    files = [path.locate() for path in package.files or ()]
    sizes[package.name] = sum(path.stat().st_size for path in files if path.exists())
print(json.dumps(sizes))
"""


def cases() -> list[Case]:
    return [Case("cold_start", _rows)]


def _rows(plan: Plan) -> Iterator[Row]:
    if plan.divide > 1:  # Only to see that it runs.
        yield _first_batch(plan, sys.executable)
        return
    with tempfile.TemporaryDirectory(prefix="headrace-cold-start-") as folder:
        environment = Path(folder) / "environment"
        _run(sys.executable, "-m", "venv", str(environment))
        python = str(environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
        pip = (python, "-m", "pip", "--quiet")
        yield _seconds(
            "cold_start/pip wheel, compiling", 90, *pip, "wheel", "--no-deps", "-w", folder, str(_ROOT)
        )
        (wheel,) = Path(folder).glob("*.whl")
        yield _seconds("cold_start/pip install, dependencies", None, *pip, "install", *_dependencies(wheel))
        yield _seconds("cold_start/pip install, the wheel", 10, *pip, "install", str(wheel))
        yield _first_batch(plan, python)
        yield from _sizes(python)


def _first_batch(plan: Plan, python: str) -> Row:
    """A process from its start until priorities are updated, beside one that imports NumPy."""
    first = _until_told(python, str(_FIRST_BATCH))
    ours, bare = [], []
    for _ in range(plan.rounds):
        ours.append(_until_told(python, str(_FIRST_BATCH)))
        bare.append(_until_told(python, "-c", _NUMPY))
    row = Row(
        "cold_start/first batch", "s", Spread.of(ours), Spread.of(bare), "import numpy", goal=Goal(most=0.6)
    )
    finish(row)
    row.ratio = row.limit.median / row.value.median if row.limit else None
    row.warm_up = {"the first process": first}
    return row


def _until_told(*command: str) -> float:
    begin = time.monotonic()
    return float(_run(*command)) - begin


def _dependencies(wheel: Path) -> list[str]:
    """Returns what the wheel needs without extras."""
    from importlib.metadata import PathDistribution
    from zipfile import Path as InZip

    (info,) = (path for path in InZip(wheel).iterdir() if path.name.endswith(".dist-info"))
    return [need for need in PathDistribution(info).requires or () if "extra ==" not in need]


def _sizes(python: str) -> Iterator[Row]:
    """Megabytes of Headrace, and with all that it needs beside NumPy."""
    sizes: dict[str, int] = json.loads(_run(python, "-c", _SIZES))
    for name in ("numpy", "pip", "setuptools"):
        sizes.pop(name, None)
    ours, all_of_it = sizes["headrace"] / 1e6, sum(sizes.values()) / 1e6
    largest = sorted(sizes.items(), key=lambda item: -item[1])
    yield Row("cold_start/size", "MB", Spread(ours, ours, ours), goal=Goal(most=25))
    row = Row("cold_start/size, with dependencies", "MB", Spread(all_of_it, all_of_it, all_of_it))
    row.notes.append(", ".join(f"{name} {size / 1e6:.1f}" for name, size in largest if size > 1e5))
    yield row


def _seconds(case: str, most: float | None, *command: str) -> Row:
    begin = time.perf_counter()
    _run(*command)
    taken = time.perf_counter() - begin
    return Row(case, "s", Spread(taken, taken, taken), goal=None if most is None else Goal(most=most))


def _run(*command: str) -> str:
    # Not from this clone: PYTHONPATH may point there.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
