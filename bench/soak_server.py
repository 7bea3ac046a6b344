"""Kills a server, its writers and its learner at random moments; each acknowledged item must be there, once.

    python -m bench.soak_server [SECONDS] [SEED]

A round starts a server whose replay is on disk, two writers and a learner, each a process of its own, and kills some of
them (kill -9) after random times; each is started again. Then the table that nobody has sampled is read. For each
writer it must hold the items 0, 1, 2 and so on, in their order, each once, at least as far as `flush` has returned.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

import headrace as hr
from headrace.replay.intake.writer import Writer

# Steps so large that a writer puts them into memory that it shares with the server.
_ROW = 64
_SIGNATURE = hr.Signature.like({"writer": 0, "n": 0, "row": np.zeros(_ROW, np.float32)})
_CAPACITY = 2_000_000
_WRITERS = 2
_STEPS_A_FLUSH = 40
_TIMEOUT = 30.0
_NUMBER = struct.Struct("<q")
_READY = -1


class Child(NamedTuple):
    """A process, and the pipe over which it sends numbers."""

    pid: int
    numbers: int


def _forked(work: Callable[..., None], *arguments: object) -> Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.set_blocking(reading, False)
        return Child(pid, reading)
    code = 1
    try:
        os.close(reading)
        work(lambda number: os.write(writing, _NUMBER.pack(number)), *arguments)
        code = 0
    except BaseException as error:
        print(f"{work.__name__}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def _serve(tell: Callable[[int], int], folder: Path) -> None:
    fifo = hr.selectors.Fifo()
    tables = [
        hr.Table("kept", sampler=fifo, remover=fifo, max_size=_CAPACITY, max_times_sampled=1),
        hr.Table("used", sampler=hr.selectors.Prioritized(), remover=fifo, max_size=500),
    ]
    replay = hr.Replay(_SIGNATURE, tables, path=folder / "replay", capacity=_CAPACITY)
    with hr.Server({"r": replay}, address=None, unix=folder / "socket"):
        tell(_READY)
        time.sleep(1e6)


def _client(folder: Path) -> hr.Client:
    while True:
        with suppress(hr.Disconnected):  # The server is being started again.
            return hr.Client(f"unix://{folder}/socket", timeout=_TIMEOUT)
        time.sleep(0.01)


def _new_writer(client: hr.Client) -> Writer:
    rules = [hr.ItemRule("kept", 1), hr.ItemRule("used", 3, stride=2)]
    while True:
        with suppress(hr.Disconnected):
            return client.replay("r").writer(items=rules)
        time.sleep(0.01)


def _write(tell: Callable[[int], int], folder: Path, number: int) -> None:
    with _client(folder) as client:
        with _new_writer(client) as writer:
            n = 0
            while True:
                for _ in range(_STEPS_A_FLUSH):
                    writer.append({"writer": number, "n": n, "row": np.full(_ROW, n, np.float32)})
                    n += 1
                    if n % 100 == 0:
                        writer.end_episode()
                writer.flush(_TIMEOUT)
                tell(n)


def _learn(_: Callable[[int], int], folder: Path) -> None:
    chance = np.random.default_rng()
    with _client(folder) as client:
        while True:
            with suppress(hr.Disconnected, hr.DeadlineExceeded):
                replay = client.replay("r")
                batch = replay.sample("used", 32, timeout=1.0)
                assert (batch.data["row"][..., 0] == batch.data["n"]).all(), "a torn row"
                replay.update_priorities("used", batch.info.keys, chance.random(32))


class Round:
    """A server with its clients, from an empty folder to the look at its items.

    Args:
        folder: empty.
        chance: of the moments and the victims.
    """

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder = folder
        self._chance = chance
        self._writers = 0
        # Each writer's number of acknowledged items.
        self.acknowledged: dict[int, int] = {}
        # Processes that ended by themselves, with an error.
        self.ended = 0
        self._pipes: dict[int, int] = {}
        self._children: dict[str, Child] = {}

    def run(self, kills: int) -> dict[str, int]:
        """Kills so many processes; returns the numbers of items."""
        try:
            for name in ("server", "learner", *(f"writer {number}" for number in range(_WRITERS))):
                self._start(name)
            for _ in range(kills):
                time.sleep(self._chance.uniform(0.02, 0.4))
                victims = self._chance.sample(sorted(self._children), self._chance.choice([1, 1, 2]))
                for name in victims:
                    self._kill(name)
                for name in sorted(victims, key=lambda name: name != "server"):
                    self._start(name)
            for name in list(self._children):
                if name != "server":
                    self._kill(name)
            return self._look()
        finally:
            for name in list(self._children):
                self._kill(name)

    def _start(self, name: str) -> None:
        if name == "server":
            child = self._children[name] = _forked(_serve, self._folder)
            deadline = time.monotonic() + _TIMEOUT
            while not self._numbers(child):
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.005)
        elif name == "learner":
            self._children[name] = _forked(_learn, self._folder)
        else:
            number = self._writers
            self._writers += 1
            self._children[name] = child = _forked(_write, self._folder, number)
            self._pipes[child.pid] = number

    def _numbers(self, child: Child) -> list[int]:
        """Returns the numbers that a child has sent; those of a writer are noted."""
        data = b""
        with suppress(BlockingIOError):
            while piece := os.read(child.numbers, 1 << 16):
                data += piece
        found = [number for (number,) in _NUMBER.iter_unpack(data)]
        if found and child.pid in self._pipes:
            self.acknowledged[self._pipes[child.pid]] = found[-1]
        return found

    def _kill(self, name: str) -> None:
        child = self._children.pop(name)
        for each in (*self._children.values(), child):
            if each.pid in self._pipes:
                self._numbers(each)
        os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        if child.pid in self._pipes:
            self._numbers(child)
        os.close(child.numbers)
        self.ended += os.WIFEXITED(status)

    def _look(self) -> dict[str, int]:
        """Reads the items, and compares them with those that were acknowledged."""
        seen: dict[int, list[int]] = {}
        with hr.Client(f"unix://{self._folder}/socket", timeout=_TIMEOUT) as client:
            replay = client.replay("r")
            while left := len(replay.table("kept")):
                data = replay.sample("kept", min(left, 20_000), timeout=_TIMEOUT).data
                assert (data["row"] == data["n"][:, None]).all(), "a torn row"
                for number in np.unique(data["writer"]).tolist():
                    seen.setdefault(number, []).extend(data["n"][data["writer"] == number].tolist())
        assert not self.ended, "a process ended by itself; its error is above"
        for number, items in seen.items():
            assert items == list(range(len(items))), f"writer {number}: {_first_wrong(items)}"
        for number, count in self.acknowledged.items():
            found = len(seen.get(number, ()))
            assert found >= count, f"writer {number}: {count} items acknowledged, {found} found"
        return {"items": sum(map(len, seen.values())), "acknowledged": sum(self.acknowledged.values())}


def _first_wrong(items: list[int]) -> str:
    place = next(place for place, item in enumerate(items) if item != place)
    return f"expected item {place}, got {items[place]}, after {items[max(0, place - 3) : place]}"


def soak(seconds: float, seed: int, most_kills: int = 8) -> dict[str, int]:
    """Runs rounds until the time is over; returns sums over them."""
    chance = random.Random(seed)
    total = {"rounds": 0, "kills": 0, "items": 0, "acknowledged": 0}
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        kills = chance.randint(2, most_kills)
        with tempfile.TemporaryDirectory() as folder:
            found = Round(Path(folder), chance).run(kills)
        total["rounds"] += 1
        total["kills"] += kills
        for name, count in found.items():
            total[name] += count
    return total


def load_everything() -> None:
    """Loads in this process what children would load one by one; it leaves no thread."""
    with hr.Replay(_SIGNATURE, [hr.Table.queue("q", 1)]) as replay, hr.Server({"r": replay}) as server:
        with hr.Client(server.address):
            pass


if __name__ == "__main__":
    arguments = sys.argv[1:]
    seconds = float(arguments[0]) if arguments else 240.0
    seed = int(arguments[1]) if len(arguments) > 1 else random.randrange(10**6)
    print(f"seed {seed}", flush=True)
    load_everything()
    print(soak(seconds, seed))
