"""The entry of a worker process.

It is a fresh Python (`handle.process.WorkerProcess`), so a user's script needs no main guard. It ends by a message of
the collector, by an exception, or when the collector's process is gone. In the last case it stops before its next
step, and does not wait for a long step.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import cloudpickle

from headrace.collectors.failures import FAILURE_EXITCODE, failed
from headrace.collectors.last_step import LastStep
from headrace.collectors.loop.task import Task
from headrace.collectors.messages import AnyMessage, Start
from headrace.collectors.worker.inbox import Ending, WorkerInbox
from headrace.collectors.worker.seeds import WorkerSeeds
from headrace.collectors.worker.worker import Worker
from headrace.errors import Disconnected
from headrace.exiting import exit_within_a_second
from headrace.leases.channel import Channel


def main(descriptor: int, parent: int) -> int:
    """Serves the collector of process `parent` at the other end of this socket; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_way()
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    exitcode = serve(Channel(connection, AnyMessage), lambda inbox: inbox.watch(parent))
    exit_within_a_second(exitcode, "a worker")
    return exitcode


def give_way() -> None:
    """Keeps this process from preempting a thread that wakes it on the same core: one of the collector, mostly.

    The collector tells one worker after another to begin. A worker that preempted it would keep the others waiting for
    a turn of the scheduler, 3 to 4 ms. The shares of the cores stay as they are.
    """
    with suppress(OSError):  # A sandbox may refuse these calls.
        if os.sched_getscheduler(0) == os.SCHED_OTHER:  # Else the user has chosen a policy.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def serve(channel: Channel, watch: Callable[[WorkerInbox], None]) -> int:
    """Serves the collector at the other end of a channel; returns the exit code.

    Args:
        channel: to the collector.
        watch: runs in a thread, and ends the process when the collector is gone.
    """
    inbox, report = WorkerInbox(channel), _FailureReport(channel)
    try:
        frame = channel.receive()
        start = frame.message
        assert isinstance(start, Start)
        threading.Thread(target=watch, args=(inbox,), daemon=True, name="headrace-watch").start()
        last_step = LastStep.attach(frame.descriptors[0])
        _work(channel, inbox, start, cloudpickle.loads(frame.payload), last_step, report)
    except (Disconnected, Ending):
        return FAILURE_EXITCODE
    except BaseException as error:
        report.send(error)
        return FAILURE_EXITCODE
    return 0


def _work(
    channel: Channel,
    inbox: WorkerInbox,
    start: Start,
    task: Task,
    last_step: LastStep,
    report: _FailureReport,
) -> None:
    seeds = WorkerSeeds(start)
    seeds.seed_generators()
    seeds.follow_imports()
    worker = Worker(channel, inbox, start.worker_idx, seeds, task, last_step, report.send)
    try:
        worker.run()
    except BaseException as error:
        worker.note_taken()
        report.send(error)
        with suppress(Exception):
            worker.loop.stepper.close()
        raise Ending from error
    worker.finish()


class _FailureReport:
    """Sends the exception that ends the worker, once. Thread-safe: environments may close late."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sending = threading.Lock()
        self._was_sent = False

    def send(self, error: BaseException) -> None:
        with self._sending:
            if self._was_sent:
                return
            self._was_sent = True
            with suppress(Disconnected):  # The collector is gone as well.
                report, pickled = failed(error)
                self._channel.send(report, payload=pickled)
