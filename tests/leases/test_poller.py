"""The wait for many descriptors."""

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

from headrace.kernels.quiet_condition import QuietCondition
from headrace.leases.poller import READ, Poller

JOIN = 30


def waits(condition, threads):
    """Waits until so many threads wait for a condition."""
    while True:
        with condition:
            if len(condition._sleepers) == threads:
                return


def test_a_wait_wakes_all_threads_and_finds_what_they_do():
    conditions = [QuietCondition(threading.RLock()) for _ in range(2)]
    here, there = socket.socketpair()

    def wait(condition):
        with condition:
            return condition.wait(JOIN), there.send(b"x")

    poller = Poller()
    with here, there, ThreadPoolExecutor(3) as threads:
        poller.watch(here.fileno(), READ, "here")
        waiting = [threads.submit(wait, each) for each in (*conditions, conditions[0])]
        waits(conditions[0], 2)
        waits(conditions[1], 1)
        sleepers = [lock for condition in conditions for lock in condition.take_sleepers()]
        assert poller.wait(JOIN, sleepers) == [("here", READ)]
        assert [each.result(JOIN) for each in waiting] == [(True, 1)] * 3
        assert poller.wait(0.0, []) == [("here", READ)]
    poller.close()
