"""Other libraries doing the same work. Each module has `WORK`: by name of the work, a function that prepares a `Run`.

A library that is not installed is skipped by name (performance P6).
"""

from __future__ import annotations

import importlib.util
from typing import Any

from bench.measure import Plan, Run

_MODULES = {
    "cpprb": "bench.peers.with_cpprb",
    "stable_baselines3": "bench.peers.with_sb3",
    "tianshou": "bench.peers.with_tianshou",
    "torchrl": "bench.peers.with_torchrl",
    "flashbax": "bench.peers.with_flashbax",
    "skrl": "bench.peers.with_skrl",
}


def sides(work: str, plan: Plan, **arguments: Any) -> dict[str, Run]:
    """The peers' sides of one work; none unless the plan asks for peers."""
    if not plan.peers:
        return {}
    return {
        name: module.WORK[work](**arguments) for name, module in installed().items() if work in module.WORK
    }


def installed() -> dict[str, Any]:
    """The adapters whose library is there."""
    return {
        name: importlib.import_module(module)
        for name, module in _MODULES.items()
        if importlib.util.find_spec(name) is not None
    }


def missing() -> list[str]:
    """Libraries that are not installed."""
    return [name for name in _MODULES if importlib.util.find_spec(name) is None]
