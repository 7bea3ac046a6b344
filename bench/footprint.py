"""Memory of a step beside its own bytes, as the system sees it and as `statistics()` says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.case import Case
from bench.measure import Goal, Plan, Row, Spread

_ROOT = Path(__file__).parents[1]
_SIZES = {"uniform": 1_000_000, "prioritized": 1_000_000, "frames": 100_000}


def cases() -> list[Case]:
    return [
        Case("footprint/uniform", lambda plan: _beside(plan, "uniform", Goal(most=24))),
        Case("footprint/prioritized", lambda plan: _beside(plan, "prioritized", Goal(most=40))),
        Case("footprint/frames", _frames),
    ]


def _beside(plan: Plan, what: str, goal: Goal) -> Iterator[Row]:
    size = plan.size(_SIZES[what], 50_000)
    # Large pages come and go whole: the further they are apart, the less that is of the difference.
    found = _slope(_child(what, size), _child(what, 4 * size))
    resident = found["resident"] / found["steps"] - found["payload"]
    told = found["told"] / found["steps"] - found["payload"]
    yield Row(
        f"footprint/{what}, resident",
        "bytes/step",
        Spread(resident, resident, resident),
        goal=goal,
        notes=[f"statistics(): {told:.1f} beside a payload of {found['payload']} bytes"],
    )


def _frames(plan: Plan) -> Iterator[Row]:
    size = plan.size(_SIZES["frames"], 2_000)
    found = _slope(_child("frames", size), _child("frames", 2 * size))
    share = found["resident"] / found["steps"] / (84 * 84)
    told = found["told"] / found["steps"] / (84 * 84)
    yield Row(
        "footprint/frames, resident",
        "frames/step",
        Spread(share, share, share),
        goal=Goal(most=1.05),
        notes=[f"statistics(): {told:.3f}"],
    )


def _slope(small: dict[str, float], large: dict[str, float]) -> dict[str, float]:
    """What the further steps took: Python's own memory, which does not grow with the steps, is left out."""
    found = {name: large[name] - small[name] for name in small}
    return {**found, "payload": small["payload"]}


def _child(what: str, steps: int) -> dict[str, float]:
    """A fresh process, so that nothing else has a share in its memory."""
    command = [sys.executable, "-m", "bench.footprint_child", what, str(steps)]
    done = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found
