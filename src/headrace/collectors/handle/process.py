"""A worker process: started without the user's script, watched, and ended on every path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from headrace.collectors.handle.place import WorkerPlace
from headrace.collectors.messages import AnyMessage
from headrace.leases.channel import Channel

# Rules: collectors CD4. Set before NumPy or torch is imported in the worker: more threads of theirs would fight for the
# cores of the environments. torch and SciPy take OMP and MKL.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
# First of all Ctrl-C is ignored: it reaches the whole group of the terminal, and the collector decides what becomes of
# its worker. The path is that of the collector's process, so the package is found from a source tree too.
_PROGRAM = """\
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:] = sys.argv[3:]
from headrace.collectors.worker.main import main
sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
"""


# A process that is stuck in the system, on a broken disk for example, does not even end when it is killed.
_KILLED_SECONDS = 5.0


def thread_variables(num_sub_threads: int) -> dict[str, str]:
    """Returns the variables of the environment that set the threads of NumPy, torch and other libraries."""
    return dict.fromkeys(_THREAD_VARIABLES, str(num_sub_threads))


class WorkerProcess:
    """A Python that runs `headrace.collectors.worker.main.main` at one end of a channel.

    Args:
        num_sub_threads: threads of NumPy, torch and other libraries in the process.

    Attributes:
        channel: this process's end.
    """

    def __init__(self, num_sub_threads: int) -> None:
        self.channel, theirs = Channel.pair(AnyMessage)
        environment = os.environ | thread_variables(num_sub_threads)
        os.set_inheritable(theirs.fileno(), True)
        path = [entry or os.getcwd() for entry in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), str(os.getpid()), *path],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()

    def begin(self, send_task: Callable[[], None], rows_arrived: Callable[[], None]) -> None:  # noqa: ARG002
        """See `WorkerPlace.begin`."""
        send_task()

    @property
    def awaits_rows(self) -> bool:
        """See `WorkerPlace.awaits_rows`: never, as rows are written in place."""
        return False

    def __str__(self) -> str:
        return f"pid {self.pid}"

    @property
    def is_waiting(self) -> bool:
        """See `WorkerPlace.is_waiting`."""
        return False

    @property
    def never_ran(self) -> bool:
        """See `WorkerPlace.never_ran`."""
        return False

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exitcode(self) -> int | None:
        """The exit code; negative for a signal, None while the process runs."""
        return self._process.poll()

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.exitcode is None

    def wait(self, timeout: float) -> int | None:
        """Returns the exit code, or None if the process still runs after `timeout` seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, timeout))
        return self.exitcode

    def terminate(self) -> None:
        """Asks the system to end the process."""
        self._process.terminate()

    def kill(self) -> None:
        """Kills the process if it still runs."""
        if self.is_alive:
            self._process.kill()
            self.wait(_KILLED_SECONDS)

    def describe_exit(self, exitcode: int | None) -> str:
        """See `WorkerPlace.describe_exit`."""
        if exitcode is None:
            return "it closed its connection and still runs"
        if exitcode < 0:
            return f"killed by {signal.Signals(-exitcode).name}"
        return f"exit code {exitcode}"

    def disown(self) -> None:
        """Closes, in a forked child, this process's copy of the connection."""
        self.channel.close()
        self._process.returncode = 0  # Else a warning says that a child is still running.


def end_processes(processes: Sequence[WorkerPlace], timeout: float) -> list[WorkerPlace]:
    """Waits for the end of processes; terminates them after 80 % of the time, kills them after 95 %.

    Returns:
        Those that did not end by themselves.
    """
    begin = time.monotonic()

    def running(until: float) -> list[WorkerPlace]:
        return [each for each in processes if each.wait(begin + until * timeout - time.monotonic()) is None]

    late = running(0.8)
    for process in late:
        process.terminate()
    for process in running(0.95):
        process.kill()
    return late
