"""Passing received weights on to workers."""

# Rules: collectors CW8

from __future__ import annotations

import logging
import threading

from headrace.collectors.updates.updater import WeightUpdater

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.005
# For a receiver that is being read when the collector is shut down.
_CLOSE_SECONDS = 2.0


class Following:
    """Looks for received weights in a thread of its own, and publishes them to the workers.

    It knows nothing of the collector, which can be forgotten.

    Args:
        updater: of the collector.
    """

    def __init__(self, updater: WeightUpdater) -> None:
        self._updater = updater
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begins to look, unless it has begun."""
        with self._lock:
            if self._thread is None and not self._ends.is_set():
                self._thread = threading.Thread(target=self._follow, daemon=True, name="headrace-weights")
                self._thread.start()

    def _follow(self) -> None:
        updater = self._updater
        while not self._ends.wait(_LOOK_SECONDS):
            try:
                if updater.receivers.have_news:
                    updater.receive()
            except Exception:
                if not self._ends.is_set():
                    _log.exception(
                        "received weights are not passed on any more; receive_weights() tries again"
                    )
                return

    def close(self) -> None:
        """Ends the thread."""
        self._ends.set()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_CLOSE_SECONDS)
            if thread.is_alive():
                _log.warning(
                    "a receiver of weights has not answered for %g s; its thread ends with the answer",
                    _CLOSE_SECONDS,
                )
