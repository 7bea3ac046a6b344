"""Loads a server fully for some minutes and prints the memory of its process and of its clients; it must stay flat.

    python -m bench.soak_memory [SECONDS] [INTERVAL]

One process serves two replays and two queues. Three others, one over a Unix socket, one over TCP, and one over TCP with
compression, each write steps and frames, sample them with views and priorities, send samples and take them, as fast as
they can. A fourth connects again and again, writes and samples a little, and leaves. A line for each INTERVAL (60 s)
tells the resident memory of each process (private, and shared pages that it has touched) and what was done meanwhile.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import headrace as hr
from headrace.server.compression import zstd
from headrace.statistics import ReplayStatistics

_STEP = hr.Signature.like({"observation": np.zeros(8, np.float32), "action": 0, "reward": 0.0})
_FRAME = hr.Signature.like({"observation": np.zeros((84, 84), np.uint8), "action": 0, "reward": 0.0})
_SAMPLES = {"small": np.zeros(5, np.int32), "large": np.zeros(7168, np.int32)}
_VIEWS = {"observation": hr.View(shift="-3:1"), "next_observation": hr.View("observation", shift="-2:2")}
_TIMEOUT = 60.0


class Reading(NamedTuple):
    """Memory of all processes at one moment.

    Attributes:
        seconds: since the load began.
        private: bytes of each process by its name.
        shared: the same for pages that it shares with others.
        done: items inserted into tables and sampled from them so far, samples received by queues, and connections.
    """

    seconds: float
    private: dict[str, int]
    shared: dict[str, int]
    done: tuple[int, int, int, int]


def _memory(pid: int) -> tuple[int, int]:
    """Returns the bytes of private and of shared memory of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    private, shared = (int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
    return private, shared


def _forked(work: Callable[..., None], *arguments: object) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work(*arguments)
    except BaseException as error:
        print(f"{work.__name__}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _tables(max_size: int) -> list[hr.Table]:
    fifo = hr.selectors.Fifo()
    kinds = {"uniform": hr.selectors.Uniform(), "prioritized": hr.selectors.Prioritized()}
    return [hr.Table(name, sampler=kind, remover=fifo, max_size=max_size) for name, kind in kinds.items()]


def _serve(ready: int, path: Path) -> None:
    served: dict[str, hr.Replay | hr.BatchQueue] = {
        "steps": hr.Replay(_STEP, _tables(20_000)),
        "frames": hr.Replay(_FRAME, _tables(2_000)),
        "small": hr.BatchQueue(_SAMPLES["small"], 256),
        "large": hr.BatchQueue(_SAMPLES["large"], 64),
    }
    with hr.Server(served, unix=path) as server:
        os.write(ready, server.addresses[0].encode())
        time.sleep(1e6)


def _write(client: hr.Client, name: str, signature: hr.Signature, lanes: int) -> None:
    rules = [hr.ItemRule("uniform", 1, lookahead=3), hr.ItemRule("prioritized", 4, stride=4)]
    steps = signature.zeros(lanes)
    with client.replay(name).writer(lanes=lanes, items=rules) as writer:
        while True:
            for number in range(500):
                steps["action"][:] = number
                writer.append(steps)
            writer.end_episode()


def _sample(client: hr.Client, name: str, views: dict[str, hr.View] | None) -> None:
    chance = np.random.default_rng()
    replay = client.replay(name)
    while True:
        replay.sample("uniform", 256, views=views, timeout=_TIMEOUT)
        batch = replay.sample("prioritized", 32, timeout=_TIMEOUT)
        replay.update_priorities("prioritized", batch.info.keys, chance.random(32))


def _send(client: hr.Client, name: str) -> None:
    queue = client.queue(name)
    while True:
        for _ in range(1000):
            queue.send(_SAMPLES[name], _TIMEOUT)
        queue.wait(_TIMEOUT)


def _take(client: hr.Client, name: str, is_copied: bool) -> None:
    for _ in client.queue(name).batches(copy=is_copied):
        pass


def _use(address: str, compression: str | None) -> None:
    """Does everything at once, a thread for each kind of work."""
    with hr.Client(address, timeout=_TIMEOUT, compression=compression) as client:
        works: list[tuple[Callable[..., None], tuple[object, ...]]] = [
            (_write, ("steps", _STEP, 16)),
            (_write, ("frames", _FRAME, 4)),
            (_sample, ("steps", None)),
            (_sample, ("frames", _VIEWS)),
            (_send, ("small",)),
            (_send, ("large",)),
            (_take, ("small", True)),
            (_take, ("large", False)),
        ]
        for work, arguments in works:
            threading.Thread(target=_checked, args=(work, client, *arguments), daemon=True).start()
        time.sleep(1e6)


def _checked(work: Callable[..., None], *arguments: object) -> None:
    """Ends the process, and by that the soak, if a thread of it fails."""
    try:
        work(*arguments)
    except BaseException as error:
        print(f"{work.__name__}: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


def _come_and_go(address: str) -> None:
    while True:
        with hr.Client(address, timeout=_TIMEOUT) as client:
            replay = client.replay("steps")
            with replay.writer(items=[hr.ItemRule("uniform", 1)]) as writer:
                writer.append(_STEP.zeros())
            replay.sample("uniform", 16, timeout=_TIMEOUT)
            client.queue("small").send(_SAMPLES["small"], _TIMEOUT)


def _done(client: hr.Client) -> tuple[int, int, int, int]:
    record = client.statistics()
    inserts = samples = received = 0
    for served in record.served.values():
        if isinstance(served, ReplayStatistics):
            inserts += sum(table.inserts for table in served.tables.values())
            samples += sum(table.samples for table in served.tables.values())
        else:
            received += served.samples_received
    return inserts, samples, received, record.connections_total


def soak(seconds: float, interval: float) -> list[Reading]:
    """Returns a reading for each interval; prints it too.

    Args:
        seconds: of load.
        interval: seconds between two readings.

    Raises:
        AssertionError: a process has ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        reading, ready = os.pipe()
        children = {"server": _forked(_serve, ready, path)}
        try:
            address = os.read(reading, 100).decode()
            children |= {
                "Unix": _forked(_use, f"unix://{path}", None),
                "TCP": _forked(_use, address, None),
                "zstd": _forked(_use, address, "zstd" if zstd.is_installed() else None),
                "come and go": _forked(_come_and_go, address),
            }
            return _readings(children, f"unix://{path}", seconds, interval)
        finally:
            for pid in children.values():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            os.close(reading)
            os.close(ready)


def _readings(children: dict[str, int], address: str, seconds: float, interval: float) -> list[Reading]:
    found: list[Reading] = []
    began = time.monotonic()
    with hr.Client(address, timeout=_TIMEOUT) as client:
        while (now := time.monotonic() - began) < seconds:
            time.sleep(min(interval, seconds - now))
            for name, pid in children.items():
                assert not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT), f"{name} has ended"
            memory = {name: _memory(pid) for name, pid in children.items()}
            private, shared = ({name: pair[kind] for name, pair in memory.items()} for kind in (0, 1))
            found.append(Reading(time.monotonic() - began, private, shared, _done(client)))
            _show(found)
    return found


def _show(found: list[Reading]) -> None:
    last, before = found[-1], found[-2].done if len(found) > 1 else (0, 0, 0, 0)
    sizes = ", ".join(
        f"{name} {nbytes / 1e6:.1f} + {last.shared[name] / 1e6:.1f}" for name, nbytes in last.private.items()
    )
    counts = [now - then for now, then in zip(last.done, before, strict=True)]
    names = ("inserts", "samples", "samples of queues", "connections")
    done = ", ".join(f"{count} {name}" for count, name in zip(counts, names, strict=True))
    print(f"{last.seconds:.0f} s: {sizes} MB; {done}", flush=True)


def load_everything() -> None:
    """Loads in this process what its children would load one by one; it leaves no thread."""
    with hr.BatchQueue(0, 1) as queue, hr.Replay(_STEP, _tables(1)) as replay:
        with hr.Server({"q": queue, "r": replay}) as server, hr.Client(server.address):
            pass


if __name__ == "__main__":
    load_everything()
    soak(
        float(sys.argv[1]) if len(sys.argv) > 1 else 600.0, float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    )
