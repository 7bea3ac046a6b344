"""The end of a process whose environments or policies have left threads, for which the interpreter waits for ever."""

# Rules: collectors CQ7

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time

_log = logging.getLogger(__name__)

_SECONDS = 1.0


def threads_left() -> list[threading.Thread]:
    """Returns the threads that keep this process from ending."""
    return [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]


def exit_within_a_second(exitcode: int, who: str) -> None:
    """Ends this process in a second if its threads keep the interpreter from ending; returns at once.

    Args:
        exitcode: of the process.
        who: names it in a warning.
    """
    threading.Thread(target=_exit, args=(exitcode, who), daemon=True, name="headrace-end").start()


def _exit(exitcode: int, who: str) -> None:
    time.sleep(_SECONDS)
    left = threads_left()
    if not left:
        return
    _log.warning(
        "%s (pid %d) ends although threads of its environment or policy still run: %s; end them in close(), or make "
        "them daemons",
        who,
        os.getpid(),
        ", ".join(thread.name for thread in left),
    )
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exitcode)
