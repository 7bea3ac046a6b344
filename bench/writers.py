"""Steps of environments into 3-step transitions: one copy, and 64 side by side that reset themselves.

All copies may end in one call, as with a limit of time, or each in a call of its own: then every other call has an end
or a reset.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import EPISODE, LANES, small_signature, table, vector_step

_STEPS = 3


def cases() -> list[Case]:
    return [
        contest_case("writers/one", _one, Goal(least=100e3)),
        contest_case("writers/64 transitions", lambda plan: _lanes(plan, 0), Goal(least=3e6)),
        contest_case(
            "writers/64 transitions, staggered", lambda plan: _lanes(plan, EPISODE + 1), Goal(least=1e6)
        ),
    ]


@contextmanager
def _one(plan: Plan) -> Iterator[Contest]:
    size = plan.size(100_000, 512)
    steps = [_scalars(vector_step(time, 1)) for time in range(EPISODE)]
    with hr.Replay(small_signature(), [table(size)], seed=0) as replay:
        with hr.TransitionWriter(replay, "t", _STEPS) as writer:
            ours = _run_one(writer, steps)
            ours(2 * size)
            yield Contest(
                ours=ours,
                limit=_ring(vector_step(0, 1), size),
                limit_name="plain ring",
                verify=lambda _: _check(replay, writer, size),
                unit="steps/s",
            )


def _scalars(step: dict[str, Any]) -> tuple[Any, ...]:
    following = step["observation"][0].copy()
    following[1] += 1
    return int(step["action"][0]), float(step["reward"][0]), bool(step["terminated"][0]), False, following


def _run_one(writer: hr.StepWriter, steps: list[tuple[Any, ...]]) -> Run:
    first, place = np.zeros(4, np.float32), 0

    def run(count: int) -> None:
        nonlocal place
        for _ in range(count):
            if not place:
                writer.add_first(first)
            writer.add(*steps[place])
            place = (place + 1) % EPISODE

    return run


@contextmanager
def _lanes(plan: Plan, spread: int) -> Iterator[Contest]:
    size = plan.size(1_000_000, 512)
    steps = _vector_steps(spread)
    with hr.Replay(small_signature(), [table(size)], seed=0) as replay:
        with hr.TransitionWriter(replay, "t", _STEPS, lanes=LANES, autoreset="next_step") as writer:
            writer.add_first(steps[-1][-1])
            ours = _run_lanes(writer, steps)
            ours(-(-3 * size // LANES))
            yield Contest(
                ours=ours,
                limit=_ring(vector_step(0), size // LANES * LANES, LANES),
                limit_name="plain ring",
                verify=lambda _: _check(replay, writer, size),
                per_call=LANES,
                unit="steps/s",
            )


def _vector_steps(spread: int) -> list[tuple[Any, ...]]:
    """A period of calls in which every lane ends once and is reset once; the ends are spread over so many calls.

    The observation tells the lane and the time in its episode, the action the lane, the reward the time.
    """
    period = EPISODE + 1
    shift = np.arange(LANES) * spread // LANES
    steps = []
    for call in range(period):
        time = (call + shift) % period  # The last one is the reset.
        following = np.zeros((LANES, 4), np.float32)
        following[:, 0] = np.arange(LANES)
        following[:, 1] = np.where(time == EPISODE, 0, time + 1)
        ends = time == EPISODE - 1
        steps.append((np.arange(LANES), time.astype(np.float32), ends, np.zeros(LANES, np.bool_), following))
    return steps


def _run_lanes(writer: hr.StepWriter, steps: list[tuple[Any, ...]]) -> Run:
    # No lane begins with its reset.
    place = 0 if not steps[0][1].max() >= EPISODE else 1

    def run(count: int) -> None:
        nonlocal place
        for _ in range(count):
            writer.add(*steps[place])
            place = (place + 1) % len(steps)

    return run


def _check(replay: hr.Replay, writer: hr.TransitionWriter, size: int) -> None:
    """That the table is full of transitions of three steps, or fewer at an end."""
    if len(replay.table("t")) != size:
        raise AssertionError(f"{len(replay.table('t'))} items, expected {size}")
    data = replay.sample("t", 256, views=writer.views).data
    lane, time, after = data["observation"][:, 0], data["observation"][:, 1], data["next_observation"]
    steps = np.minimum(_STEPS, EPISODE - time)
    if not ((data["n"] == steps) & (after[:, 1] == time + steps) & (after[:, 0] == lane)).all():
        raise AssertionError("next observations are of other steps")
    if not ((data["action"] == lane) & (data["terminated"] == (time + steps == EPISODE))).all():
        raise AssertionError("actions or flags are of other steps")
    returns = sum(0.99**k * (time + k) * (k < steps) for k in range(_STEPS))
    if not np.allclose(data["reward"], returns, rtol=1e-5):
        raise AssertionError("returns are of other steps")


def _ring(step: dict[str, Any], size: int, lanes: int = 1) -> Run:
    columns = [(np.zeros((size, *value.shape[1:]), value.dtype), value) for value in step.values()]
    place = 0

    def run(count: int) -> None:
        nonlocal place
        for _ in range(count):
            for column, value in columns:
                column[place : place + lanes] = value
            place = (place + lanes) % size

    return run
