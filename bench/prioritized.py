"""Prioritized batches with their update, and how the cost grows with the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench import peers
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import BATCH, PlainSteps, check_transitions, filled
from bench.uniform import PLAIN_VIEWS

EXPONENT = 0.6


def cases() -> list[Case]:
    return [
        contest_case("prioritized/sample + update", _sample_and_update, Goal(least=20e3)),
        # 1e7 items in at most twice the time of 1e5.
        contest_case("prioritized/growth 1e5 to 1e7", _growth, Goal(ratio=0.5)),
    ]


def _filled(size: int) -> Any:
    return filled(size, hr.selectors.Prioritized(EXPONENT), lookahead=1)


@contextmanager
def _sample_and_update(plan: Plan) -> Iterator[Contest]:
    size = plan.size(1_000_000, 4 * BATCH)
    with _filled(size) as replay:
        yield Contest(
            ours=_turns(replay),
            limit=_search(PlainSteps(size)),
            limit_name="search in fixed sums + 6 np.take",
            peers=peers.sides("prioritized", plan, size=size, exponent=EXPONENT),
            verify=_check,
        )


@contextmanager
def _growth(plan: Plan) -> Iterator[Contest]:
    small, large = plan.size(100_000, 4 * BATCH), plan.size(10_000_000, 8 * BATCH)
    with _filled(small) as few, _filled(large) as many:
        yield Contest(ours=_turns(many), limit=_turns(few), limit_name="ours at 1e5", verify=_check)


def _turns(replay: hr.Replay) -> Run:
    """Sample and update, with other priorities each time."""
    pool = np.random.default_rng(1).random((64, BATCH)) + 0.01
    turn = 0

    def run(count: int) -> Any:
        nonlocal turn
        batch = None
        for _ in range(count):
            batch = replay.sample("t", BATCH, views=PLAIN_VIEWS)
            turn = (turn + 1) % len(pool)
            if replay.update_priorities("t", batch.info.keys, pool[turn]) != BATCH:
                raise AssertionError("an update did not find its item")
        return batch

    return run


def _check(batch: Any) -> None:
    check_transitions(batch.data)
    if not ((batch.info.probabilities > 0) & (batch.info.probabilities < 1)).all():
        raise AssertionError("probabilities outside (0, 1)")


def _search(plain: PlainSteps) -> Run:
    """What no prioritized buffer can do without: a search among sums, here never brought up to date, and the copies."""
    random = np.random.default_rng(0)
    out = plain.buffers(BATCH)
    priorities = random.random(plain.size)
    sums = np.cumsum(priorities)
    values = random.random(BATCH)

    def run(count: int) -> None:
        for _ in range(count):
            rows = np.searchsorted(sums, random.random(BATCH) * sums[-1])
            plain.take(rows, out)
            plain.take_next(rows, out)
            priorities[rows] = values

    return run
