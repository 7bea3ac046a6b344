"""Time from the call that writes one sample to a queue on a server until it is taken, beside a bare round trip.

Both processes of a figure and of its limit are bound: to one processor, or to a processor each. The system puts two
processes that take turns on one processor or on two as it likes, and a bare round trip takes two to five times as long
on two, where a processor that sleeps has to be woken.

Rates are those of one sample after the other: one divided by the median time.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import headrace as hr
from bench.case import Case
from bench.measure import Goal, Plan, Row, Run, Spread, finish
from bench.server import Child, listening, started_child
from bench.server_child import NBYTES, sample_of, stamped

_GOAL = Goal(ratio=1 / 3)
# About what one sample and one bare round trip take.
_ROUND_SECONDS = 1e-4


class _Placement(NamedTuple):
    """The processors of this process and of the other one."""

    here: int
    there: int


def cases() -> list[Case]:
    """The cases of this topic."""
    first, *others = sorted(os.sched_getaffinity(0))
    placements = {"one processor": _Placement(first, first)}
    if others:
        placements["a processor each"] = _Placement(first, others[0])
    ways: dict[str, tuple[str, Callable[[str, int], AbstractContextManager[Run]]]] = {
        "by the learner, unix": ("unix", _learner),
        "by the learner, tcp": ("tcp", _learner),
        "by the client, unix": ("unix", _client),
    }
    return [
        _delay_case(f"server/queue, written to sampled {way}, {name}", kind, taken, placement)
        for way, (kind, taken) in ways.items()
        for name, placement in placements.items()
    ]


def _delay_case(
    name: str, kind: str, taken: Callable[[str, int], AbstractContextManager[Run]], placement: _Placement
) -> Case:
    def rows(plan: Plan) -> Iterator[Row]:
        count = max(10, round(plan.seconds / _ROUND_SECONDS))
        with _bound_to(placement.here), taken(kind, placement.there) as ours:
            with _echo(kind, placement.there) as limit:
                ours(count)
                limit(count)
                seconds = [(ours(count), limit(count)) for _ in range(2 * plan.rounds)]
        row = Row(name, "samples/s", *_rates(seconds), limit_name="bare round trip", goal=_GOAL)
        finish(row)
        medians = [statistics.median(times) * 1e6 for times in zip(*seconds, strict=True)]
        row.notes.append("median {:.1f} us, a bare round trip {:.1f} us".format(*medians))
        yield row

    return Case(name, rows)


def _rates(seconds: list[tuple[float, float]]) -> list[Spread]:
    return [Spread.of([1 / each for each in times]) for times in zip(*seconds, strict=True)]


@contextmanager
def _bound_to(processor: int) -> Iterator[None]:
    """Binds this thread, and the threads and processes that it starts, to a processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {processor})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _child_on(processor: int, *arguments: object) -> Iterator[Child]:
    """Yields another process on a processor, after its first line; see `Child`."""
    with ExitStack() as stack:
        with _bound_to(processor):
            child = stack.enter_context(started_child(*arguments))
        yield child


@contextmanager
def _echo(kind: str, processor: int) -> Iterator[Run]:
    """A run makes so many round trips over a bare socket, and returns the median of their seconds."""
    with ExitStack() as stack:
        listener, address = stack.enter_context(listening(kind))
        child = stack.enter_context(_child_on(processor, "echo", address))
        connection = stack.enter_context(listener.accept()[0])
        child.line()
        data = bytes(NBYTES)

        def run(count: int) -> float:
            child.begin(count)
            found = []
            for _ in range(count):
                began = time.monotonic_ns()
                connection.sendall(data)
                connection.recv(NBYTES)
                found.append(time.monotonic_ns() - began)
            child.line()
            return statistics.median(found) / 1e9

        yield run


@contextmanager
def _learner(kind: str, processor: int) -> Iterator[Run]:
    """A run takes so many samples of a client in the server's process, each sent when this process asks for it.

    The sample has the time at which `send` was called. Returns the median of the seconds until `sample` returned.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        where: dict[str, Any] = {"address": None, "unix": f"{folder}/s"} if kind == "unix" else {}
        queue = hr.BatchQueue(stamped(), 1)
        server = stack.enter_context(hr.Server({"q": queue}, **where))
        listener, address = stack.enter_context(listening("unix"))
        child = stack.enter_context(_child_on(processor, "stamped", server.address, address))
        connection = stack.enter_context(listener.accept()[0])
        child.line()

        def run(count: int) -> float:
            child.begin(count)
            found = []
            for _ in range(count):
                connection.sendall(b"x")
                batch, _ = queue.sample(timeout=60)
                found.append(time.monotonic_ns() - int(batch[0, 0]))
            child.line()
            return statistics.median(found) / 1e9

        yield run


@contextmanager
def _client(kind: str, processor: int) -> Iterator[Run]:
    """A run sends so many samples to a queue of batches of one in another process, and takes each of them back."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        child = stack.enter_context(_child_on(processor, "queue", f"{folder}/q"))
        addresses = child.line().split()
        child.line()
        queue = stack.enter_context(hr.Client(addresses[kind == "unix"])).queue("q")
        sample = sample_of(NBYTES)

        def run(count: int) -> float:
            found = []
            for number in range(count):
                began = time.monotonic_ns()
                sample[0] = number
                queue.send(sample)
                batch, _ = queue.sample(timeout=60)
                found.append(time.monotonic_ns() - began)
                if batch[0, 0] != number:
                    raise AssertionError("another sample came")
            return statistics.median(found) / 1e9

        yield run
