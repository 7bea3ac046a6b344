"""Samples and batches through a server, beside bare sockets and memcpy; the other side is another process.

Queues: the clients send from their processes, this one serves the queue and takes the batches. Replays: another process
serves, this one samples.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from bench.case import Case, contest_case
from bench.frames import filled_frames
from bench.measure import Contest, Goal, Plan, Run
from bench.server_child import sample_of
from bench.steps import BATCH, LANES, check_transitions, small_signature, table, vector_step
from bench.uniform import samples

ROOT = Path(__file__).parents[1]
SMALL, FRAME, LARGE = 20, 28 << 10, 1 << 20
SAMPLES_IN_FLIGHT, MANY_SAMPLES_IN_FLIGHT = 64, 1024
IN_FLIGHT = 16


def cases() -> list[Case]:
    return [
        *_small_cases("20 B, 1 client", 1, {"unix": Goal(least=400e3), "tcp": Goal(least=400e3)}),
        *_small_cases("20 B, 4 clients", 4, {"unix": Goal(least=600e3)}),
        *_queue_cases("28 KB", FRAME, 1, {"unix": Goal(least=5.0), "tcp": Goal(least=2.5)}, unit="GB/s"),
        *_queue_cases("1 MB", LARGE, 1, {"unix": Goal(ratio=0.7), "tcp": Goal(ratio=0.8)}, unit="GB/s"),
        contest_case("server/queue, 64 clients", _many_clients, Goal(ratio=0.9)),
        _replay_case("small, unix", "unix", Goal(least=12e3)),
        _replay_case("small, tcp", "tcp", Goal(least=5e3)),
        contest_case("server/replay frames, unix", _frames(_sampled), Goal(ratio=0.7)),
        contest_case("server/replay frames, unix, loader", _frames(partial(_loaded, prefetch=2))),
        contest_case("server/replay writes of 64 steps, unix", _writes, Goal(least=1e6)),
    ]


class Child:
    """The other process; see `bench.server_child`."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.server_child", *map(str, arguments)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """Returns its next line."""
        assert self._process.stdout is not None
        found = self._process.stdout.readline().strip()
        if not found:
            raise RuntimeError("the other process has ended")
        return found

    def begin(self, count: int) -> None:
        """Gives it work."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


@contextmanager
def started_child(*arguments: object) -> Iterator[Child]:
    """Yields another process; see `Child`."""
    child = Child(*arguments)
    try:
        yield child
    finally:
        child.close()


# ---- queues ----------------------------------------------------------------------------------------------------------


def _small_cases(name: str, clients: int, goals: Mapping[str, Goal]) -> list[Case]:
    """Each also with many samples in flight."""
    many = _queue_cases(
        f"{name}, {MANY_SAMPLES_IN_FLIGHT} in flight", SMALL, clients, goals, MANY_SAMPLES_IN_FLIGHT
    )
    return [*_queue_cases(name, SMALL, clients, goals), *many]


def _queue_cases(
    name: str,
    nbytes: int,
    clients: int,
    goals: Mapping[str, Goal],
    in_flight: int = SAMPLES_IN_FLIGHT,
    unit: str = "samples/s",
) -> list[Case]:
    return [
        contest_case(f"server/queue {name}, {kind}", _queue(nbytes, clients, kind, in_flight, unit), goal)
        for kind, goal in goals.items()
    ]


def _queue(nbytes: int, clients: int, kind: str, in_flight: int, unit: str) -> Callable[[Plan], Any]:
    @contextmanager
    def prepare(_: Plan) -> Iterator[Contest]:
        with ExitStack() as stack:
            batch = max(1, min(BATCH, (8 << 20) // nbytes))
            run = stack.enter_context(_sent(nbytes, batch, kind, [1] * clients, in_flight))
            if kind == "unix" and nbytes == LARGE:
                limit, name = _copies(nbytes, batch), "memcpy"
            else:
                limit, name = stack.enter_context(_bare(nbytes, batch, kind)), "bare socket, whole batches"
            yield Contest(
                ours=run,
                limit=limit,
                limit_name=name,
                per_call=batch * (nbytes / 1e9 if unit == "GB/s" else 1),
                unit=unit,
            )

    return prepare


@contextmanager
def _sent(
    nbytes: int, batch: int, kind: str, clients: list[int], in_flight: int = SAMPLES_IN_FLIGHT
) -> Iterator[Run]:
    """A run takes so many batches of samples that child processes send, each with some clients."""
    queue = hr.BatchQueue(sample_of(nbytes), batch)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        where: dict[str, Any] = {"address": None, "unix": f"{folder}/s"} if kind == "unix" else {}
        server = stack.enter_context(hr.Server({"q": queue}, **where))
        children = [
            stack.enter_context(started_child("sender", server.address, nbytes, count, in_flight))
            for count in clients
        ]
        for child in children:
            child.line()
        taken = 0

        def run(count: int) -> None:
            nonlocal taken
            total = count * batch
            shares = [total // len(children)] * len(children)
            shares[0] += total - sum(shares)
            for child, share in zip(children, shares, strict=True):
                child.begin(share)
            numbers = 0
            for _ in range(count):
                values, _ = queue.sample(timeout=60)
                numbers += int(values[:, 0].sum())
            for child in children:
                child.line()
            if len(children) == len(clients) == 1:
                if numbers != sum(range(taken, taken + total)):
                    raise AssertionError("samples are missing or there twice")
                taken += total

        yield run


@contextmanager
def _bare(nbytes: int, batch: int, kind: str) -> Iterator[Run]:
    """A run receives so many batches over a bare socket, each in one piece into memory that is kept."""
    with ExitStack() as stack:
        listener, address = stack.enter_context(listening(kind))
        child = stack.enter_context(started_child("raw", address, min(batch * nbytes, 8 << 20)))
        connection = stack.enter_context(listener.accept()[0])
        child.line()
        memory = np.zeros((3, batch * nbytes), np.uint8)

        def run(count: int) -> int:
            child.begin(count)
            found = 0
            for number in range(count):
                rest = memory[number % 3].data
                while rest:
                    rest = rest[connection.recv_into(rest) :]
                found += int(memory[number % 3, ::nbytes].sum())
            child.line()
            return found

        yield run


@contextmanager
def listening(kind: str) -> Iterator[tuple[socket.socket, str]]:
    """Yields a bare socket that listens, and its address."""
    with ExitStack() as stack:
        if kind == "tcp":
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            yield listener, f"tcp://127.0.0.1:{listener.getsockname()[1]}"
            return
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listener.bind(f"{folder}/s")
        listener.listen()
        yield listener, f"unix://{folder}/s"


def _copies(nbytes: int, batch: int) -> Run:
    sample = sample_of(nbytes)
    memory = np.zeros((3, batch, len(sample)), np.int32)

    def run(count: int) -> int:
        found = 0
        for number in range(count):
            slot = memory[number % 3]
            for row in slot:
                row[:] = sample
            found += int(slot[:, 0].sum())
        return found

    return run


@contextmanager
def _many_clients(plan: Plan) -> Iterator[Contest]:
    clients = plan.size(64, 2)
    with _sent(SMALL, BATCH, "unix", [clients]) as many, _sent(SMALL, BATCH, "unix", [1]) as one:
        yield Contest(ours=many, limit=one, limit_name="one client", per_call=BATCH, unit="samples/s")


# ---- replays ---------------------------------------------------------------------------------------------------------


def _replay_case(name: str, kind: str, goal: Goal) -> Case:
    @contextmanager
    def prepare(_: Plan) -> Iterator[Contest]:
        with (
            _served_replay("small", kind) as replay,
            _loaded(replay, hr.views.transition(), IN_FLIGHT) as ours,
        ):
            yield Contest(
                ours=ours,
                limit=samples(replay, hr.views.transition(), BATCH),
                limit_name="one request at a time",
                verify=lambda batch: check_transitions(batch.data),
            )

    return contest_case(f"server/replay {name}", prepare, goal)


@contextmanager
def _served_replay(kind: str, way: str) -> Iterator[Any]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        child = stack.enter_context(started_child("replay", kind, f"{folder}/s"))
        addresses = child.line().split()
        child.line()
        yield stack.enter_context(hr.Client(addresses[way == "unix"])).replay("r")


@contextmanager
def _loaded(replay: Any, views: Mapping[str, hr.View], prefetch: int) -> Iterator[Run]:
    """Batches of a loader."""
    with hr.loaders.Loader(replay, "t", BATCH, views=views, prefetch=prefetch) as loader:

        def run(count: int) -> Any:
            batch = None
            for _ in range(count):
                batch = next(loader)
            return batch

        yield run


@contextmanager
def _sampled(replay: Any, views: Mapping[str, hr.View]) -> Iterator[Run]:
    """Batches of `sample`."""
    yield samples(replay, views, BATCH)


def _frames(
    drawn: Callable[[Any, Mapping[str, hr.View]], AbstractContextManager[Run]],
) -> Callable[[Plan], AbstractContextManager[Contest]]:
    """Stacks of four frames; `drawn` yields the run that draws them from the client's replay."""

    @contextmanager
    def prepare(_: Plan) -> Iterator[Contest]:
        views = hr.views.transition(frame_stack=4)
        with (
            _served_replay("frames", "unix") as remote,
            drawn(remote, views) as ours,
            filled_frames(5000) as replay,
        ):
            yield Contest(
                ours=ours,
                limit=samples(replay, views, BATCH),
                limit_name="in process",
            )

    return prepare


@contextmanager
def _writes(_: Plan) -> Iterator[Contest]:
    """Windows of 64 steps, of 64 lanes at once."""
    rules = [hr.ItemRule("t", 64, stride=64)]
    with _served_replay("written", "unix") as remote, hr.Replay(small_signature(), [table(1000)]) as replay:
        with (
            remote.writer(lanes=LANES, items=rules) as there,
            replay.writer(lanes=LANES, items=rules) as here,
        ):
            yield Contest(ours=_appends(there), limit=_appends(here), limit_name="in process", unit="steps/s")


def _appends(writer: Any) -> Run:
    step = vector_step(0)

    def run(count: int) -> None:
        for _ in range(-(-count // LANES)):
            writer.append(step)
        writer.flush(60.0)

    return run
