"""How fast samples go through a `BatchQueue`: sending threads, one taking thread, every batch's sum checked.

The limit is one thread that assigns the same rows into memory of the same size.

    python -m bench.batch_queue
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from typing import Any

import numpy as np

from headrace.server import BatchQueue

ROUNDS = 7
BATCH_SIZE = 256
# Samples that touch all the memory once.
WARM_UP = 8 * BATCH_SIZE
# Name, floats in a sample, samples in a round.
SIZES = (("20 B", 5, 40_000), ("28 KB", 7168, 6_000))
WAYS = (("1 sender, copy", 1, True), ("1 sender, views", 1, False), ("4 senders, copy", 4, True))


def through_queue(width: int, samples: int, senders: int, copy: bool) -> float:
    """Samples a second from the first `send` until the last batch is taken."""
    sample = np.ones(width, np.float32)
    queue = BatchQueue(sample, BATCH_SIZE)
    total = 0

    def take() -> None:
        nonlocal total
        for batch in queue.batches(copy=copy):
            total += int(batch[:, 0].sum())

    def send() -> None:
        for _ in range(samples // senders):
            queue.send(sample)

    taking = threading.Thread(target=take)
    sending = [threading.Thread(target=send) for _ in range(senders)]
    taking.start()
    for _ in range(WARM_UP):
        queue.send(sample)
    start = time.perf_counter()
    for thread in sending:
        thread.start()
    for thread in sending:
        thread.join()
    queue.close()
    taking.join()
    seconds = time.perf_counter() - start
    tail = queue.tail()
    if total + (0 if tail is None else len(tail)) != WARM_UP + samples // senders * senders:
        raise RuntimeError("samples were lost")
    return samples / seconds


def row_by_row(width: int, samples: int) -> float:
    """Rows a second into a ring of the queue's size."""
    sample, ring = np.ones(width, np.float32), np.zeros((3 * BATCH_SIZE, width), np.float32)
    ring[:] = 1
    start = time.perf_counter()
    for index in range(samples):
        ring[index % len(ring)] = sample
    return samples / (time.perf_counter() - start)


def run() -> list[dict[str, Any]]:
    """Returns one record a size and way: the median rate, its range, and the ratio to the limit."""
    records = []
    for size, width, samples in SIZES:
        rates: dict[str, list[float]] = {"rows assigned by one thread": []}
        for _ in range(ROUNDS):
            rates["rows assigned by one thread"].append(row_by_row(width, samples))
            for name, senders, copy in WAYS:
                rates.setdefault(name, []).append(through_queue(width, samples, senders, copy))
        limit = statistics.median(rates["rows assigned by one thread"])
        for name, found in rates.items():
            median = statistics.median(found)
            records.append(
                {
                    "name": f"batch_queue: {size}, {name}",
                    "unit": "samples/s",
                    "median": median,
                    "min": min(found),
                    "max": max(found),
                    "gigabytes_per_second": median * width * 4 / 1e9,
                    "ratio_to_limit": median / limit,
                }
            )
    return records


if __name__ == "__main__":
    for record in run():
        print(json.dumps(record))
