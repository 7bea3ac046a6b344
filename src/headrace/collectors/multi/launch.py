"""The start of workers in a thread of its own, which Ctrl-C does not reach."""

# Rules: collectors CX4, CX7

from __future__ import annotations

import threading
from collections.abc import Iterator

from headrace.collectors.handle.group_status import GroupStatus

_END = object()


class Launch:
    """Starts the workers of a collector, step by step, while the caller waits.

    Ctrl-C comes to the main thread alone. There it could come when a process was started and is not noted yet, and that
    process would be left (test_interrupts_of_constructors.py).

    Args:
        status: of the workers.
    """

    def __init__(self, status: GroupStatus) -> None:
        self._status = status
        # Held by the thread from its begin to its end. Re-entrant: a finalizer may run `stop` there.
        self._running = threading.RLock()
        self._is_stopped = self._has_ended = False
        self._error: BaseException | None = None

    def run(self, steps: Iterator[object]) -> None:
        """Iterates over `steps` in the thread, and waits for the end.

        Raises:
            Exception: raised by a step.
            WorkerDied: a worker has ended already.
        """
        thread = threading.Thread(target=self._run, args=(steps,), daemon=True, name="headrace-launch")
        thread.start()
        self._status.wait(lambda: self._has_ended, None, lambda: "the start of the workers")
        thread.join()
        if self._error is not None:
            raise self._error

    def _run(self, steps: Iterator[object]) -> None:
        try:
            with self._running:
                while not self._is_stopped and next(steps, _END) is not _END:
                    """The next step."""
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended = True
            self._status.notify()

    def stop(self) -> None:
        """Waits for the step that is under way; no further one begins."""
        self._is_stopped = True
        with self._running:
            """The thread has ended, or makes no step."""
