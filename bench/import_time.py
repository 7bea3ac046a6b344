"""How long `import headrace` takes in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from bench.case import Case
from bench.measure import Goal, Plan, Row, Spread, finish

_CHILD = """
import sys, time
begin = time.perf_counter()
import {module}
print((time.perf_counter() - begin) * 1e3)
print(*(name for name in ("torch", "jax", "gymnasium", "ray") if name in sys.modules))
"""
# Milliseconds.
_BEYOND_NUMPY = 60


def cases() -> list[Case]:
    return [Case("import", _rows)]


def _rows(plan: Plan) -> Iterator[Row]:
    first = _milliseconds("headrace")
    ours, bare = [], []
    for _ in range(plan.rounds):
        ours.append(_milliseconds("headrace"))
        bare.append(_milliseconds("numpy"))
    goal = Goal(most=Spread.of(bare).median + _BEYOND_NUMPY)
    row = Row("import", "ms", Spread.of(ours), Spread.of(bare), "import numpy", goal=goal)
    finish(row)
    row.ratio = row.limit.median / row.value.median if row.limit else None
    row.warm_up = {"first call": first / 1e3}
    yield row


def _milliseconds(module: str) -> float:
    command = [sys.executable, "-c", _CHILD.format(module=module)]
    taken, loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[:2]
    if loaded:
        raise AssertionError(f"import {module} loads {loaded}")
    return float(taken)
