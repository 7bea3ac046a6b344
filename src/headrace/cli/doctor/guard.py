"""Keeps an environment under examination from holding the examination."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Self

from headrace.cli.doctor.report import Report
from headrace.exiting import threads_left

# Between two looks at whether a call has returned.
_LOOK_SECONDS = 0.2


class HangWatch:
    """Notices, in a thread, that a call of the environment does not return.

    Args:
        report: counts the calls that have returned, and gets the finding.
        seconds: that a call may take.
        ends: called in the thread after the finding was added; it ends the process.
    """

    def __init__(self, report: Report, seconds: float, ends: Callable[[], None]) -> None:
        self._report, self._seconds, self._ends = report, seconds, ends
        self._is_over = threading.Event()
        self._examined = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="headrace-doctor")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        calls, waited = self._report.calls, 0.0
        while not self._is_over.wait(_LOOK_SECONDS):
            if self._report.calls != calls:
                calls, waited = self._report.calls, 0.0
                continue
            waited += _LOOK_SECONDS
            if waited >= self._seconds:
                self._report.error(
                    "hang",
                    f"no call has returned for {self._seconds:g} s, after {calls} that have; now {self._place()}",
                    "Give what that line waits for a timeout, and raise an error when it is over. If the environment "
                    "is only slow, give --timeout, and give collectors start_timeout and worker_timeout.",
                )
                self._ends()
                return

    def _place(self) -> str:
        """Returns the line that the examining thread is at."""
        frames = traceback.extract_stack(sys._current_frames()[self._examined])
        return f"in {frames[-1].name} ({Path(frames[-1].filename).name}:{frames[-1].lineno})"


def look_for_threads(report: Report, before: list[threading.Thread]) -> bool:
    """Reports threads that environments have left; returns whether there are any."""
    left = [thread.name for thread in threads_left() if thread not in before]
    if left:
        report.warn(
            "threads",
            f"after close these threads still run: {', '.join(left)}; they keep a program from ending",
            "End them in close(), or make them daemons: threading.Thread(..., daemon=True)",
        )
    return bool(left)
