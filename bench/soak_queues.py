"""Sends samples from several clients while their connections are cut; each sample must arrive once, in order.

    python -m bench.soak_queues [SECONDS] [SEED]

Half of the time the clients use a Unix socket, where samples and confirmations are shared memory, and half TCP.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr

_TIMEOUT = 60.0
_ROW = 50


class Sender:
    """One client that numbers its samples, in a thread."""

    def __init__(self, address: str, name: int, seed: int) -> None:
        self.client = hr.Client(address, timeout=_TIMEOUT)
        self.sent = 0
        self._name = name
        self._random = random.Random(f"{seed} {name}")
        self._failure: BaseException | None = None

    def run(self, has_ended: Callable[[], bool]) -> None:
        """Sends bursts of random lengths with random pauses, and waits for all of them at the end."""
        queue = self.client.queue("q")
        try:
            while not has_ended():
                for _ in range(self._random.choice((1, 3, 40, 200))):
                    queue.send((self._name, self.sent, np.full(_ROW, self.sent % 256, np.uint8)), _TIMEOUT)
                    self.sent += 1
                turn = self._random.random()
                if turn < 0.1:
                    queue.wait(_TIMEOUT)
                elif turn < 0.2:
                    time.sleep(self._random.random() * 0.01)
            queue.wait(_TIMEOUT)
        except BaseException as error:
            self._failure = error

    def close(self) -> None:
        """Ends the client.

        Raises:
            BaseException: what a call of it raised.
        """
        self.client.close()
        if self._failure is not None:
            raise self._failure


def take_all(queue: hr.BatchQueue, found: list[int]) -> None:
    """Counts the samples of each sender until the queue is closed.

    Raises:
        AssertionError: one is missing, is there twice, or has other values.
    """
    for names, numbers, rows in queue.batches():
        for name, number, row in zip(names.tolist(), numbers.tolist(), rows, strict=True):
            assert number == found[name], f"sender {name}: expected sample {found[name]}, got {number}"
            assert (row == number % 256).all(), f"sender {name}: sample {number} has other values"
            found[name] += 1


def soak(address: dict[str, Any], seconds: float, seed: int, clients: int = 6) -> dict[str, int]:
    """Returns the numbers of connections that were cut and of samples that were sent.

    Args:
        address: arguments of `hr.Server`.
        seconds: for which samples are sent.
        seed: of the cuts and the senders.
        clients: number of senders.

    Raises:
        AssertionError: see `take_all`.
    """
    queue = hr.BatchQueue((0, 0, np.zeros(_ROW, np.uint8)), 7, num_buffers=3)
    chance, found = random.Random(seed), [0] * clients
    with hr.Server({"q": queue}, **address) as server:
        senders = [Sender(server.address, name, seed) for name in range(clients)]
        end = time.monotonic() + seconds
        works: list[Callable[[], object]] = [lambda: take_all(queue, found)]
        works += [lambda sender=each: sender.run(lambda: time.monotonic() > end) for each in senders]  # type: ignore[misc]
        taker, *threads = [threading.Thread(target=work) for work in works]
        for thread in (taker, *threads):
            thread.start()
        cuts = 0
        while time.monotonic() < end:
            time.sleep(chance.random() * 0.05)
            chance.choice(senders).client._session.link()._channel.shutdown()
            cuts += 1
        for thread in threads:
            thread.join(2 * _TIMEOUT)
        for sender in senders:
            sender.close()
    received = queue.statistics().samples_received
    queue.close()
    taker.join(_TIMEOUT)
    rest = queue.tail()
    sent = sum(sender.sent for sender in senders)
    delivered = sum(found) + (0 if rest is None else len(rest[0]))
    assert sent == received == delivered, f"{sent} sent, {received} received, {delivered} delivered"
    return {"cuts": cuts, "samples": sent}


def main() -> None:
    """Runs the soak over both kinds of sockets."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    print("tcp", soak({}, seconds / 2, seed))
    with tempfile.TemporaryDirectory() as folder:
        print("unix", soak({"address": None, "unix": Path(folder) / "s"}, seconds / 2, seed))


if __name__ == "__main__":
    main()
