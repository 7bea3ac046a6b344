"""Time from the call that writes one sample to a queue on a server until it is taken, beside a bare round trip.

Rates are those of one sample after the other: one divided by the time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import headrace as hr
from bench.case import Case, contest_case
from bench.measure import Contest, Goal, Plan, Row, Run, Spread, finish
from bench.server import listening, started_child
from bench.server_child import NBYTES, sample_of, stamped

_ROUNDS_SECONDS = 2e-3


def cases() -> list[Case]:
    """The cases of this topic."""
    goal = Goal(ratio=1 / 3)
    return [
        *(
            _delay_case(f"server/queue, written to sampled by the learner, {kind}", kind, goal)
            for kind in ("unix", "tcp")
        ),
        contest_case("server/queue, written to sampled", _round_trips, goal),
    ]


@contextmanager
def _echo(kind: str) -> Iterator[Run]:
    """A run makes so many round trips over a bare socket, and returns the median of their seconds."""
    with ExitStack() as stack:
        listener, address = stack.enter_context(listening(kind))
        child = stack.enter_context(started_child("echo", address))
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
def _written(kind: str) -> Iterator[Run]:
    """A run takes so many samples of a client, each sent when this process asks for it.

    The sample has the time at which `send` was called. Returns the median of the seconds until `sample` returned.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        where: dict[str, Any] = {"address": None, "unix": f"{folder}/s"} if kind == "unix" else {}
        queue = hr.BatchQueue(stamped(), 1)
        server = stack.enter_context(hr.Server({"q": queue}, **where))
        listener, address = stack.enter_context(listening("unix"))
        child = stack.enter_context(started_child("stamped", server.address, address))
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


def _delay_case(name: str, kind: str, goal: Goal) -> Case:
    def rows(plan: Plan) -> Iterator[Row]:
        count = max(10, round(plan.seconds / _ROUNDS_SECONDS))
        with _written(kind) as written, _echo(kind) as echo:
            written(count)
            rounds = [(1 / written(count), 1 / echo(count)) for _ in range(2 * plan.rounds)]
        ours, limit = (Spread.of(list(rates)) for rates in zip(*rounds, strict=True))
        row = Row(name, "samples/s", ours, limit, "bare round trip", goal=goal)
        finish(row)
        row.notes.append(f"median {1e6 / ours.median:.0f} us, a bare round trip {1e6 / limit.median:.0f} us")
        yield row

    return Case(name, rows)


@contextmanager
def _round_trips(_: Plan) -> Iterator[Contest]:
    """A client of a queue of batches of one: sends a sample, and takes it."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        child = stack.enter_context(started_child("queue", f"{folder}/q"))
        address = child.line().split()[-1]
        child.line()
        queue = stack.enter_context(hr.Client(address)).queue("q")
        sample = sample_of(NBYTES)

        def ours(count: int) -> None:
            for number in range(count):
                sample[0] = number
                queue.send(sample)
                if queue.sample(timeout=60)[0][0, 0] != number:
                    raise AssertionError("another sample came")

        echo = stack.enter_context(_echo("unix"))
        yield Contest(ours=ours, limit=echo, limit_name="bare round trip", unit="samples/s")
