"""A named benchmark, and how `scripts/bench` finds them all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from bench.measure import Contest, Goal, Plan, Row, hold


@dataclass(frozen=True)
class Case:
    """One row or a few.

    Args:
        name: `topic/what`.
        rows: measures; gives rows, or plain dicts for the JSON lines.
    """

    name: str
    rows: Callable[[Plan], Iterator[Any]]


def contest_case(
    name: str, prepare: Callable[[Plan], AbstractContextManager[Contest]], goal: Goal | None = None
) -> Case:
    """A case that is one contest: `prepare` makes the working set and cleans it up."""

    def rows(plan: Plan) -> Iterator[Row]:
        begin = time.perf_counter()
        with prepare(plan) as contest:
            prepared = time.perf_counter() - begin
            row = hold(contest, plan)
        row.case, row.goal = name, goal
        row.warm_up = {"preparing": prepared, **row.warm_up}
        yield row

    return Case(name, rows)
