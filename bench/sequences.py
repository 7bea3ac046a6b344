"""Batches of 32 sequences of 64 steps: small ones at two sizes of store, and stacks of frames."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import headrace as hr
from bench import peers
from bench.case import Case, contest_case
from bench.frames import EPISODE as FRAME_EPISODE
from bench.frames import FRAME, STACK, filled_frames, frame_numbers
from bench.measure import Contest, Goal, Plan, Run
from bench.steps import EPISODE, LANES, PlainSteps, check_sequences, filled
from bench.uniform import samples

BATCH = 32
LENGTH = 64
_STACKS = {
    "observation": hr.View("observation", shift=f"{1 - STACK}:0", fill="edge"),
    "action": hr.View("action"),
    "reward": hr.View("reward"),
    "terminated": hr.View("terminated"),
    "truncated": hr.View("truncated"),
}


def cases() -> list[Case]:
    return [
        contest_case("sequences/small", _small, Goal(least=12e3)),
        # 1e7 steps in at most 1.5 times the time of 1e5.
        contest_case("sequences/growth 1e5 to 1e7", _growth, Goal(ratio=1 / 1.5)),
        contest_case("sequences/frames", _frames, Goal(ratio=0.6)),
    ]


def _filled(steps: int) -> Any:
    return filled(steps, length=LENGTH, stride=16)


@contextmanager
def _small(plan: Plan) -> Iterator[Contest]:
    size = plan.size(1_000_000, 2 * EPISODE * LANES)
    with _filled(size) as replay:
        yield Contest(
            ours=samples(replay, None, BATCH),
            limit=_window_takes(PlainSteps(size)),
            limit_name="random windows + 5 np.take",
            peers=peers.sides("sequences", plan, size=size),
            verify=lambda batch: check_sequences(batch.data),
        )


@contextmanager
def _growth(plan: Plan) -> Iterator[Contest]:
    small, large = plan.size(100_000, 2 * EPISODE * LANES), plan.size(10_000_000, 4 * EPISODE * LANES)
    with _filled(small) as few, _filled(large) as many:
        yield Contest(
            ours=samples(many, None, BATCH),
            limit=samples(few, None, BATCH),
            limit_name="ours at 1e5",
            verify=lambda batch: check_sequences(batch.data),
        )


@contextmanager
def _frames(plan: Plan) -> Iterator[Contest]:
    size = plan.size(100_000, 2 * FRAME_EPISODE)
    with filled_frames(size, length=LENGTH, stride=16, lookahead=0) as replay:
        yield Contest(
            ours=samples(replay, _STACKS, BATCH),
            limit=_copies(),
            limit_name="memcpy of the output",
            peers=peers.sides("sequence_frames", plan, size=size),
            verify=lambda batch: _check_stacks(batch.data),
        )


def _check_stacks(data: dict[str, Any]) -> None:
    last = data["action"]
    if not (np.diff(last, axis=1) == 1).all():
        raise AssertionError("a window has gaps")
    first = last // FRAME_EPISODE * FRAME_EPISODE
    expected = np.maximum(last[..., None] + np.arange(1 - STACK, 1), first[..., None])
    if not (frame_numbers(data["observation"]) == expected).all():
        raise AssertionError("a stack holds other frames")


def _window_takes(plain: PlainSteps) -> Run:
    random = np.random.default_rng(0)
    out = plain.buffers(BATCH, LENGTH)
    steps = LANES * np.arange(LENGTH)

    def run(count: int) -> None:
        for _ in range(count):
            starts = random.integers(0, plain.size - LENGTH * LANES, BATCH)
            plain.take(starts[:, None] + steps, out)

    return run


def _copies() -> Run:
    source = np.ones((BATCH, LENGTH, STACK, *FRAME), np.uint8)
    out = np.empty_like(source)

    def run(count: int) -> None:
        for _ in range(count):
            np.copyto(out, source)

    return run
