"""Publishing weights to workers that collect, and looking for new ones at each step.

`python -m bench.weights` is the stress of section 16 of the collectors' rules: readers in other processes check every
set that they read, while 100 000 sets are published.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan
from headrace.weights.board import BoardReader, WeightBoard
from headrace.weights.layout import WeightLayout

_ARRAYS = 10
_NUMBERS = 1 << 18  # float32, so ten arrays are 10 MB.
_WORKERS = 2
_PUBLICATIONS = 100_000


class _Counting(gymnasium.Env[Any, Any]):
    """Costs nothing but the call."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    _observation = np.zeros(4, np.float32)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self._observation, {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self._observation, 1.0, False, False, {}


def _act(params: Any, observation: Any) -> Any:
    return np.full(len(observation), int(params["w0"][0]) % 2)


def _weights(value: float, numbers: int) -> dict[str, Any]:
    return {f"w{index}": np.full(numbers, value, np.float32) for index in range(_ARRAYS)}


@contextmanager
def _publish(plan: Plan) -> Iterator[Contest]:
    """To two workers that collect, against one copy of the same arrays into memory that is there."""
    numbers = plan.size(_NUMBERS)
    sets = [_weights(value, numbers) for value in (0.0, 1.0)]
    place = _weights(2.0, numbers)
    with hr.MultiCollector(
        [_Counting] * _WORKERS, hr.FunctionalPolicy(_act, sets[0]), sync=False, frames_per_batch=1000
    ) as collector:
        collector.next(timeout=60)

        def publish(count: int) -> Any:
            for number in range(count):
                collector.update_policy_weights_(weights=sets[number % 2])
            return collector

        def copy(count: int) -> None:
            for number in range(count):
                for name, array in sets[number % 2].items():
                    np.copyto(place[name], array)

        yield Contest(
            ours=publish,
            limit=copy,
            limit_name="one copy of the same arrays",
            verify=_check,
            per_call=_ARRAYS * numbers * 4 / 1e9,
            unit="GB/s",
        )


def _check(collector: Any) -> None:
    if collector.get_cached_weights("policy")["w0"][0] not in (0.0, 1.0):
        raise AssertionError("other weights than the published ones")


@contextmanager
def _look(_: Plan) -> Iterator[Contest]:
    """A step's look for new weights, when there are none."""
    from headrace.collectors.loop.times import LoopTimes
    from headrace.collectors.updates.models import models_of
    from headrace.collectors.updates.reading import WeightReading
    from headrace.collectors.updates.shared import SharedWeights

    policy = hr.FunctionalPolicy(_act, _weights(0.0, 8))
    models = models_of(policy, ["policy"])
    shared = SharedWeights([models], [None])
    reading = WeightReading(policy, models, {}, LoopTimes())
    reading.receive(os.dup(shared.descriptor), shared.layout, 0, 1)

    def look(count: int) -> None:
        for _ in range(count):
            reading.take_over()

    try:
        yield Contest(ours=look, unit="looks/s")
    finally:
        shared.close()


def cases() -> list[Case]:
    """The cases of this topic."""
    return [
        contest_case("weights/publish 10 MB to 2 collecting workers", _publish, Goal(ratio=0.8)),
        contest_case("weights/look at a step", _look, Goal(least=1e6)),
    ]


def _read_and_check(descriptor: Any, layout: WeightLayout, address: int, end: Connection) -> None:
    reader = BoardReader(descriptor.detach(), layout, address, _WORKERS)
    end.send("ready")
    read = overtaken = last = 0
    while last < _PUBLICATIONS:
        newest = reader.newest()
        arrays = None if newest is None else reader.copy(newest)
        if newest is None or arrays is None:
            overtaken += 1
            continue
        if newest.number < last or any((array != newest.number % 1000).any() for array in arrays):
            end.send(f"torn or old: number {newest.number} after {last}")
            return
        read, last = read + 1, newest.number
    end.send((read, overtaken))


def stress(numbers: int = 256) -> list[Any]:
    """Publishes 100 000 sets, in turn to all readers and to one; returns what each reader has to say."""
    layout = WeightLayout(_weights(0.0, numbers))
    board = WeightBoard(layout, addresses=_WORKERS)
    board.publish(layout.arrays(_weights(0.0, numbers)), 0)
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(_WORKERS)]
    readers = [
        context.Process(
            target=_read_and_check,
            args=(multiprocessing.reduction.DupFd(board.descriptor), layout, address, pipes[address][1]),
        )
        for address in range(_WORKERS)
    ]
    for reader in readers:
        reader.start()
    for pipe in pipes:
        pipe[0].recv()
    places = layout.arrays(_weights(0.0, numbers))
    for number in range(1, _PUBLICATIONS + 1):
        for place in places:
            place[:] = number % 1000
        apart = None if number % 5 or number == _PUBLICATIONS else [number // 5 % _WORKERS]
        board.publish(places, number, apart)
    told = [pipe[0].recv() for pipe in pipes]
    for reader in readers:
        reader.join()
    board.close()
    return told


if __name__ == "__main__":
    for address, told in enumerate(stress()):
        print(f"reader {address}: sets read and overtaken, none torn: {told}")
