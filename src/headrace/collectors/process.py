"""A worker process: started without the user's script, watched, and ended on every path."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from headrace.collectors.channel import Channel

# Set before NumPy or torch is imported in the worker: its own threads would fight for the cores of the environments.
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_PROGRAM = "import sys; from headrace.collectors.worker import main; sys.exit(main(int(sys.argv[1])))"


class WorkerProcess:
    """A Python that runs `headrace.collectors.worker.main` at one end of a channel.

    Attributes:
        channel: this process's end.
    """

    def __init__(self) -> None:
        self.channel, theirs = Channel.pair()
        environment = dict(os.environ)
        environment.update({name: "1" for name in _THREAD_VARIABLES})
        # The worker must find this package where this process found it, also from a source tree.
        environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        os.set_inheritable(theirs.fileno(), True)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
            )
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def wait(self, timeout: float) -> int | None:
        """Its exit code (negative: a signal), or None if it still runs after `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def end(self, timeout: float) -> bool:
        """Wait for its end; after 80 % of the time terminate it, after 95 % kill it. Whether it ended by itself."""
        begin = time.monotonic()
        if self.wait(0.8 * timeout) is not None:
            return True
        self._process.terminate()
        if self.wait(max(0.0, 0.95 * timeout - (time.monotonic() - begin))) is None:
            self._process.kill()
            self._process.wait()
        return False


def describe_exit(exitcode: int | None) -> str:
    """What an exit code says, in words."""
    if exitcode is None:
        return "it closed its connection and still runs"
    if exitcode < 0:
        return f"killed by {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
