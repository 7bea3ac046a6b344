"""Benchmarks that measure by themselves: modules with `run() -> list[dict]`, taken in if they are there."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from bench.case import Case
from bench.measure import Plan

MODULES = ("memories", "accumulator", "batch_queue", "datasets", "minari")


def cases() -> list[Case]:
    return [Case(name, _rows(name)) for name in MODULES if _is_there(name)]


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(f"bench.{name}") is not None


def _rows(name: str) -> Any:
    def rows(_: Plan) -> Iterator[dict[str, Any]]:
        for found in importlib.import_module(f"bench.{name}").run():
            yield {"case": name, **found}

    return rows
