"""Steps into the store: one by one, and 64 environments side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench import peers
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import LANES, small_signature, table, vector_step


def cases() -> list[Case]:
    return [
        contest_case("append/one", _one, Goal(least=250e3)),
        contest_case("append/64", _uniform_lanes, Goal(least=9e6)),
        contest_case("append/64 prioritized", _prioritized_lanes, Goal(least=4e6)),
    ]


@contextmanager
def _one(plan: Plan) -> Iterator[Contest]:
    size = plan.size(100_000, 512)
    step = {name: value[0] for name, value in vector_step(3, 1).items()}
    with hr.Replay(small_signature(), [table(size)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            ours = _appends(writer.append, step, size)
            yield Contest(
                ours=ours,
                limit=_ring(step, size, 1),
                limit_name="plain ring",
                peers=peers.sides("append_one", plan, size=size),
                verify=lambda _: _check_newest(replay, step, size),
                unit="steps/s",
            )


@contextmanager
def _lanes(plan: Plan, sampler: Any, work: str) -> Iterator[Contest]:
    size = plan.size(1_000_000, 512)
    step = vector_step(3)
    with hr.Replay(small_signature(), [table(size, sampler)], seed=0) as replay:
        with replay.writer(lanes=LANES, items=[hr.ItemRule("t", 1)]) as writer:
            yield Contest(
                ours=_appends(writer.append, step, -(-size // LANES)),
                limit=_ring(step, size // LANES * LANES, LANES),
                limit_name="plain ring",
                peers=peers.sides(work, plan, size=size),
                verify=lambda _: _check_newest(replay, step, size),
                per_call=LANES,
                unit="steps/s",
            )


def _uniform_lanes(plan: Plan) -> Any:
    return _lanes(plan, hr.selectors.Uniform(), "append_64")


def _prioritized_lanes(plan: Plan) -> Any:
    return _lanes(plan, hr.selectors.Prioritized(0.6), "append_64_prioritized")


def _appends(append: Any, step: Any, until_full: int) -> Run:
    # From the first measured call on the table is full, and each item that comes removes another.
    for _ in range(until_full):
        append(step)

    def run(count: int) -> None:
        for _ in range(count):
            append(step)

    return run


def _check_newest(replay: hr.Replay, step: Any, size: int) -> None:
    """That the table is full, and every column holds what was appended."""
    if len(replay.table("t")) != size:
        raise AssertionError(f"{len(replay.table('t'))} items, expected {size}")
    data = replay.sample("t", 256).data
    for name, value in step.items():
        if not np.isin(data[name], value).all():
            raise AssertionError(f"{name}: values that were never appended")


def _ring(step: Any, size: int, lanes: int) -> Run:
    columns = [
        (np.zeros((size, *np.shape(value)[lanes > 1 :]), np.asarray(value).dtype), value)
        for value in step.values()
    ]
    place = 0

    def run_one(count: int) -> None:
        nonlocal place
        for _ in range(count):
            for column, value in columns:
                column[place] = value
            place = (place + 1) % size

    def run_lanes(count: int) -> None:
        nonlocal place
        for _ in range(count):
            for column, value in columns:
                column[place : place + lanes] = value
            place = (place + lanes) % size

    return run_one if lanes == 1 else run_lanes
