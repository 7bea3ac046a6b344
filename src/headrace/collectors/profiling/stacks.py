"""Samples of the Python stack of one thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

_PERIOD = 0.005


class StackSampler:
    """Looks every 5 ms where a thread is.

    Args:
        thread: the identifier of the thread.
        clock: returns seconds.

    Attributes:
        samples: the time of each sample, and the id of its innermost frame.
        frames: maps ids of frames to frames, as the Trace Event Format has them.
    """

    def __init__(self, thread: int, clock: Callable[[], float]) -> None:
        self._watched, self._clock = thread, clock
        self.samples: list[tuple[float, str]] = []
        self.frames: dict[str, dict[str, str]] = {}
        self._ids: dict[tuple[str, str, str], str] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="headrace-stacks")
        self._thread.start()

    def stop(self) -> None:
        """Ends the sampling."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_PERIOD):
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self.samples.append((self._clock(), self._id_of(frame)))

    def _id_of(self, frame: FrameType | None) -> str:
        """Returns the id of a frame below its callers; "" of no frame."""
        calls = []
        while frame is not None:
            calls.append((frame.f_code.co_qualname, f"{frame.f_code.co_filename}:{frame.f_lineno}"))
            frame = frame.f_back
        parent = ""
        for name, place in reversed(calls):
            known = self._ids.get((parent, name, place))
            if known is None:
                known = str(len(self.frames) + 1)
                self.frames[known] = {"name": name, "category": place} | (
                    {"parent": parent} if parent else {}
                )
                self._ids[parent, name, place] = known
            parent = known
        return parent
