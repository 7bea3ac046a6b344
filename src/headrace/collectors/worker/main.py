"""The entry of a worker process.

It is a fresh Python (`handle.process.WorkerProcess`), so a user's script needs no main guard. It ends by a message of
the collector, by an exception, or when the collector's process is gone. In the last case it stops before its next
step, and does not wait for a long step.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import socket
import sys
import threading
import time
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
from headrace.leases.channel import Channel

_log = logging.getLogger(__name__)

# The interpreter waits for ever for threads that are no daemons.
_THREAD_SECONDS = 1.0


def main(descriptor: int, parent: int) -> int:
    """Serves the collector of process `parent` at the other end of this socket; returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    give_way()
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    exitcode = serve(Channel(connection, AnyMessage), lambda inbox: inbox.watch(parent))
    threading.Thread(
        target=_end_in_spite_of_threads, args=(exitcode,), daemon=True, name="headrace-end"
    ).start()
    return exitcode


def _end_in_spite_of_threads(exitcode: int) -> None:
    """Ends this process if threads of an environment or a policy keep the interpreter from ending."""
    # Rules: collectors CQ7
    time.sleep(_THREAD_SECONDS)
    left = [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    if not left:
        return
    _log.warning(
        "a worker (pid %d) ends although threads of its environment or policy still run: %s; end them in close(), or "
        "make them daemons",
        os.getpid(),
        ", ".join(thread.name for thread in left),
    )
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exitcode)


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
        with suppress(Exception):
            worker.report_loss()
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
