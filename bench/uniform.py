"""Uniform batches of small transitions with their next observation, at four sizes of table (performance P7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench import peers
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run, short
from bench.steps import BATCH, PlainSteps, check_transitions, filled

PLAIN_VIEWS = {
    **{name: hr.View(name) for name in ("observation", "action", "reward", "terminated", "truncated")},
    "next_observation": hr.View("observation", shift=1),
}


def cases() -> list[Case]:
    goal = Goal(least=50e3)
    found = [
        _case("uniform/views", 1_000_000, PLAIN_VIEWS, goal, work="uniform"),
        _case("uniform/transition()", 1_000_000, hr.views.transition(), goal),
    ]
    return found + [
        _case(f"uniform/views of {short(size).replace(' ', '')}", size, PLAIN_VIEWS, goal)
        for size in (10_000, 100_000, 10_000_000)
    ]


def _case(name: str, steps: int, views: Mapping[str, hr.View], goal: Goal, work: str | None = None) -> Case:
    @contextmanager
    def prepare(plan: Plan) -> Iterator[Contest]:
        size = plan.size(steps, 4 * BATCH)
        with filled(size, lookahead=1) as replay:
            yield Contest(
                ours=samples(replay, views, BATCH),
                limit=_takes(PlainSteps(size)),
                limit_name="random rows + 6 np.take",
                peers=peers.sides(work, plan, size=size) if work else {},
                verify=lambda batch: check_transitions(batch.data),
            )

    return contest_case(name, prepare, goal)


def samples(replay: hr.Replay, views: Mapping[str, hr.View] | None, batch_size: int) -> Run:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = replay.sample("t", batch_size, views=views)
        return batch

    return run


def _takes(plain: PlainSteps) -> Run:
    random = np.random.default_rng(0)
    out = plain.buffers(BATCH)

    def run(count: int) -> None:
        for _ in range(count):
            rows = random.integers(0, plain.size, BATCH)
            plain.take(rows, out)
            plain.take_next(rows, out)

    return run
