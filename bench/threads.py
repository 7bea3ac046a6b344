"""One thread appends while another samples, rows of 7 KB: both together against each alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case
from bench.frames import FRAME, fill_frames, frame_numbers, frame_signature
from bench.measure import Goal, Plan, Row, Spread
from bench.steps import BATCH, table


def cases() -> list[Case]:
    return [Case("threads/append beside sample", _append_beside_sample)]


def _append_beside_sample(plan: Plan) -> Iterator[Row]:
    """The sum of what is left of each rate. Taking turns in one thread gives 1."""
    size = plan.size(50_000, 2_000)
    begin = time.perf_counter()
    with hr.Replay(frame_signature(), [table(size)], seed=0) as replay:
        with replay.writer(items=[hr.ItemRule("t", 1)]) as writer:
            fill_frames(writer, size)
            step = {
                "observation": np.zeros(FRAME, np.uint8),
                "action": np.int64(0),
                "reward": np.float32(0),
                "terminated": False,
                "truncated": False,
            }
            works = [lambda: writer.append(step), lambda: replay.sample("t", BATCH)]
            for work in works:
                work()  # The first call of a kernel compiles it.
            prepared = time.perf_counter() - begin
            sums, alone = [], []
            for _ in range(plan.rounds):
                rates = [_together([work], plan.seconds)[0] for work in works]
                both = _together(works, plan.seconds)
                sums.append(sum(shared / own for shared, own in zip(both, rates, strict=True)))
                alone.append(rates)
            frame_numbers(replay.sample("t", BATCH).data["observation"])
    appends, batches = np.median(alone, axis=0)
    yield Row(
        "threads/append beside sample",
        "times one thread",
        Spread.of(sums),
        goal=Goal(least=1.3),
        warm_up={"preparing": prepared},
        notes=[f"alone {appends:.0f} appends/s, {batches:.0f} batches/s of {BATCH}"],
    )


def _together(works: list[Callable[[], Any]], seconds: float) -> list[float]:
    """Calls per second of each, all running for so long."""
    start = threading.Barrier(len(works))
    rates = [0.0] * len(works)

    def loop(place: int) -> None:
        start.wait()
        begin = time.perf_counter()
        done, taken = 0, 0.0
        while taken < seconds:
            works[place]()
            done += 1
            taken = time.perf_counter() - begin
        rates[place] = done / taken

    threads = [threading.Thread(target=loop, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rates
