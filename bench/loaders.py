"""A loader against calling `sample` directly, and how much of the drawing a learner does not notice (loaders LS6)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import headrace as hr
from bench.case import Case, contest_case
from bench.frames import fill_frames, frame_numbers, frame_signature
from bench.measure import Contest, Goal, Plan, Row, Spread, finish
from bench.steps import BATCH, check_transitions, filled, table
from bench.uniform import PLAIN_VIEWS, samples
from headrace.loaders import Loader

# Seconds to draw a batch and seconds to learn from it.
_TIMES = ((0.004, 0.004), (0.002, 0.004), (0.004, 0.002))


def cases() -> list[Case]:
    """Of small batches the loader's own cost is seen; of frames what an idle learner waits for."""
    return [
        _small_case("loaders/drawn in the caller", 0, Goal(ratio=0.9)),
        _small_case("loaders/prefetched", 2, Goal(ratio=0.7)),
        contest_case("loaders/frames to torch, prefetched", _frames, Goal(ratio=0.9)),
        Case("loaders/overlap", _overlap),
    ]


def _small_case(name: str, prefetch: int, goal: Goal) -> Case:
    @contextmanager
    def prepare(plan: Plan) -> Iterator[Contest]:
        with filled(plan.size(100_000, 4 * BATCH), lookahead=1) as replay:
            with Loader(replay, "t", BATCH, views=PLAIN_VIEWS, prefetch=prefetch) as loader:
                yield Contest(
                    ours=_batches(loader),
                    limit=samples(replay, PLAIN_VIEWS, BATCH),
                    limit_name="replay.sample",
                    verify=lambda batch: check_transitions(batch.data),
                )

    return contest_case(name, prepare, goal)


@contextmanager
def _frames(plan: Plan) -> Iterator[Contest]:
    size = plan.size(50_000, 2_000)
    with hr.Replay(frame_signature(), [table(size)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            fill_frames(writer, size)
        with Loader(replay, "t", BATCH, to="torch") as loader:
            yield Contest(
                ours=_batches(loader),
                limit=samples(replay, None, BATCH),
                limit_name="replay.sample",
                verify=lambda batch: frame_numbers(batch.data["observation"].numpy()),
            )


def _batches(loader: Loader) -> Callable[[int], Any]:
    def run(count: int) -> Any:
        batch = None
        for _ in range(count):
            batch = next(loader)
        return batch

    return run


class _SlowReplay:
    """Takes so long to draw, and gives the number of the draw."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.drawn = 0

    def sample(self, *_: Any, **__: Any) -> int:
        time.sleep(self.seconds)
        self.drawn += 1
        return self.drawn


def _overlap(plan: Plan) -> Iterator[Row]:
    """Both sleep, so what is measured is the handing over: the slower of the two is the limit."""
    for draw, learn in _TIMES:
        count = max(5, round(plan.seconds / max(draw, learn)))
        rates, limits = [], []
        for _ in range(plan.rounds):
            rates.append(count / _seconds_with_loader(draw, learn, count))
            limits.append(count / _seconds_asleep(max(draw, learn), count))
        row = Row(
            f"loaders/overlap, draw {1e3 * draw:g} ms, learn {1e3 * learn:g} ms",
            "batches/s",
            Spread.of(rates),
            Spread.of(limits),
            "the slower of the two alone",
            goal=Goal(ratio=0.9),
            notes=[f"one after the other {1 / (draw + learn):.0f} batches/s"],
        )
        finish(row)
        yield row


def _seconds_with_loader(draw: float, learn: float, count: int) -> float:
    with Loader(_SlowReplay(draw), "t", 1) as loader:
        if next(loader) != 1:
            raise AssertionError("the first batch is not the first draw")
        begin = time.perf_counter()
        for number in range(2, count + 2):
            time.sleep(learn)
            if next(loader) != number:
                raise AssertionError("a batch is out of order")
        return time.perf_counter() - begin


def _seconds_asleep(seconds: float, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        time.sleep(seconds)
    return time.perf_counter() - begin
