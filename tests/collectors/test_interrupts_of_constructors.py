"""Ctrl-C at every place of a constructor that starts workers: no process is left when it has raised."""

import gc
import itertools
import os
import threading
from pathlib import Path

import pytest

import headrace as hr
from headrace.collectors.handle.handle import LastStep
from headrace.testing import CounterEnv

STARTING = (
    "collectors/async_collector",
    "collectors/multi_collector.py:MultiCollector.__init__",
    "collectors/multi/group.py:WorkerGroup.launch",
    "collectors/multi/group.py:WorkerGroup._start",
    "collectors/multi/launch.py:Launch.run",
    "collectors/multi/starting.py:WorkerStarter.",
    "collectors/handle/process.py:WorkerProcess.__init__",
    "collectors/handle/handle.py:WorkerHandle.__init__",
    "collectors/handle/handle.py:WorkerHandle.start",
)


def children():
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


@pytest.fixture(autouse=True)
def nothing_is_left():
    gc.collect()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    yield
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert threading.active_count() <= threads


def test_no_process_is_left(interrupt_at):
    # CX4, CX7: it is the constructor of the base class that starts the worker.
    before = children()

    def construct():
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=4).shutdown()

    for point in itertools.count():
        place = interrupt_at(point, construct, within=STARTING)
        assert children() == before, place
        if place is None:
            break
    assert point > 10


def test_a_process_without_memory_for_its_handle(monkeypatch):
    # CX4
    before = children()

    def new():
        raise OSError("no descriptor")

    monkeypatch.setattr(LastStep, "new", new)
    with pytest.raises(OSError, match="no descriptor"):
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=4)
    assert children() == before
