"""Run by `bench.server`: the other process of a figure. Each line of its input is an amount of work; it answers a line.

sender ADDRESS NBYTES CLIENTS IN_FLIGHT    samples of so many bytes to the queue "q", by so many clients in turn
raw ADDRESS NBYTES               the same number of bytes over a bare socket
echo ADDRESS                     bare round trips: sends back what comes
replay KIND PATH                 serves a replay of "small" steps or "frames"; its first line is its addresses
games CONTENT STEPS              serves a replay of frames over TCP; its first line is its address
drawing ADDRESS COMPRESSION      draws batches of these frames from the first line of its input on until the end
queue PATH                       serves a queue of batches of one sample
stamped ADDRESS BARE             a sample with the time to the queue "q", for each byte that comes over a bare socket
"""

from __future__ import annotations

import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import headrace as hr

CHUNK = 1 << 20
# Of a sample whose way is timed.
NBYTES = 64


def sample_of(nbytes: int) -> np.ndarray:
    """Returns a sample of so many bytes, whose first value will be its number."""
    return np.zeros(nbytes // 4, np.int32)


def stamped() -> np.ndarray:
    """Returns a sample whose first value will be a time in nanoseconds."""
    return np.zeros(NBYTES // 8, np.int64)


def connect(address: str) -> socket.socket:
    """Returns a bare connection."""
    if address.startswith("unix://"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address.removeprefix("unix://"))
        return connection
    host, port = address.removeprefix("tcp://").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def sender(
    address: str, nbytes: str, clients: str, in_flight: str, stack: ExitStack
) -> Callable[[int], object]:
    sample = sample_of(int(nbytes))
    queues = [
        stack.enter_context(hr.Client(address)).queue("q", example=sample, max_in_flight=int(in_flight))
        for _ in range(int(clients))
    ]
    numbers = itertools.count()

    def send(count: int) -> None:
        for queue, number in zip(itertools.cycle(queues), itertools.islice(numbers, count), strict=False):
            sample[0] = number
            queue.send(sample)
        for queue in queues:
            queue.wait()

    return send


def raw(address: str, nbytes: str, stack: ExitStack) -> Callable[[int], object]:
    connection = stack.enter_context(connect(address))
    data = memoryview(bytearray(max(int(nbytes), 1)))

    def send(count: int) -> None:
        for _ in range(count):
            connection.sendall(data)

    return send


def echo(address: str, stack: ExitStack) -> Callable[[int], object]:
    connection = stack.enter_context(connect(address))

    def answer(count: int) -> None:
        for _ in range(count):
            connection.sendall(connection.recv(NBYTES))

    return answer


def replay(kind: str, path: str, stack: ExitStack) -> Callable[[int], object]:
    from bench.frames import filled_frames
    from bench.steps import filled, small_signature, table

    if kind == "written":
        served = stack.enter_context(hr.Replay(small_signature(), [table(1000)], seed=0))
    else:
        served = stack.enter_context(
            filled_frames(5000) if kind == "frames" else filled(100_000, lookahead=1)
        )
    server = stack.enter_context(hr.Server({"r": served}, unix=Path(path)))
    print(*server.addresses, flush=True)
    return int


def games(content: str, steps: str, stack: ExitStack) -> Callable[[int], object]:
    from bench.compression import filled_games

    served = stack.enter_context(filled_games(content, int(steps)))
    print(stack.enter_context(hr.Server({"r": served})).address, flush=True)
    return int


def drawing(address: str, compression: str, stack: ExitStack) -> Callable[[int], object]:
    from bench.compression import frame_batches

    client = stack.enter_context(hr.Client(address, compression=compression or None))
    draw, is_over = frame_batches(client), threading.Event()

    def draw_all() -> None:
        while not is_over.is_set():
            draw(1)

    thread = threading.Thread(target=draw_all)

    def end() -> None:
        is_over.set()
        if thread.ident is not None:
            thread.join()

    stack.callback(end)
    return lambda _: thread.start()


def queue(path: str, stack: ExitStack) -> Callable[[int], object]:
    served = hr.BatchQueue(sample_of(NBYTES), 1, num_buffers=16)
    server = stack.enter_context(hr.Server({"q": served}, unix=Path(path)))
    print(*server.addresses, flush=True)
    return int


def stamping(address: str, bare: str, stack: ExitStack) -> Callable[[int], object]:
    sample = stamped()
    queue = stack.enter_context(hr.Client(address)).queue("q", example=sample)
    connection = stack.enter_context(connect(bare))

    def send(count: int) -> None:
        for _ in range(count):
            connection.recv(1)
            sample[0] = time.monotonic_ns()
            queue.send(sample)
        queue.wait()

    return send


def main(what: str, *arguments: str) -> None:
    kinds: dict[str, Callable[..., Callable[[int], object]]] = {
        "sender": sender,
        "raw": raw,
        "echo": echo,
        "replay": replay,
        "games": games,
        "drawing": drawing,
        "queue": queue,
        "stamped": stamping,
    }
    with ExitStack() as stack:
        work = kinds[what](*arguments, stack)
        print("ready", flush=True)
        for line in sys.stdin:
            work(int(line))
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
