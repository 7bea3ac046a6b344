"""One actor, as its collector sees it."""

# Rules: collectors CY1, CY3, CY5

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.ray.actor import ActorAddress
from headrace.collectors.ray.channels import CollectorEnd
from headrace.collectors.ray.connecting import Secret, connect
from headrace.errors import Disconnected
from headrace.leases.channel import Channel

_LOOK_SECONDS = 0.1
_CONNECT_SECONDS = 5.0
_KILLED_SECONDS = 5.0
_LAST_ROWS_SECONDS = 5.0
# Of an actor that did not end by itself; its own exit code is known to its machine alone.
_LOST = 1


class RayWorker:
    """The place of a worker in a cluster (`WorkerPlace`). A thread of its own follows the actor.

    Args:
        ray: the module.
        new_actor: starts the actor, given the secret of the connection.
        connect_timeout: seconds that the actor waits for this process once it runs.

    Attributes:
        channel: this process's end of the connection.
        actor: its handle.
    """

    def __init__(self, ray: Any, new_actor: Callable[[Secret], Any], connect_timeout: float) -> None:
        self._ray = ray
        self._secret = Secret.new()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._rows_arrived: Callable[[], None] = lambda: None
        self._connection = CollectorEnd(self._socket, self._fetch)
        self.channel: Channel = self._connection
        self.actor = new_actor(self._secret)
        self._asked = self.actor.address.remote()
        self._run = self.actor.run.remote(connect_timeout)
        self._address: ActorAddress | None = None
        self._exitcode: int | None = None
        self._reason = ""
        self._never_ran = False
        self._is_killed = threading.Event()
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __str__(self) -> str:
        address = self._address
        return "an actor without a place" if address is None else f"pid {address.pid} on {address.host}"

    def begin(self, send_task: Callable[[], None], rows_arrived: Callable[[], None]) -> None:
        """See `WorkerPlace.begin`."""
        self._rows_arrived = rows_arrived
        self._thread = threading.Thread(
            target=self._follow, args=(send_task,), daemon=True, name="headrace-ray-worker"
        )
        self._thread.start()

    def _follow(self, send_task: Callable[[], None]) -> None:
        try:
            try:
                self._connect()
            finally:
                send_task()
            exitcode, reason = int(self._result(self._run)), ""
            self._wait_for_last_rows()
        except Exception as error:
            exitcode, reason = _LOST, str(error).strip()
            self._never_ran = self._address is None and self._is_lost(error)
        self._reason, self._exitcode = reason or f"exit code {exitcode}", exitcode
        self._end()

    def _wait_for_last_rows(self) -> None:
        """Waits until the last messages of the actor, which has ended, are received: their rows are still in there."""
        end = time.monotonic() + _LAST_ROWS_SECONDS
        while not (self._is_killed.is_set() or self._connection.has_ended.wait(_LOOK_SECONDS)):
            if time.monotonic() >= end:
                return

    def _fetch(self, number: int) -> Future[NDArray[np.uint8]]:
        """Begins to fetch rows of the actor from the object store, where they are read in place."""
        rows: Future[NDArray[np.uint8]] = self.actor.rows.remote(number).future()
        rows.add_done_callback(lambda _: self._rows_arrived())
        return rows

    @property
    def awaits_rows(self) -> bool:
        """See `WorkerPlace.awaits_rows`."""
        return self._connection.awaits_rows

    def _connect(self) -> None:
        self._address = ActorAddress(*self._result(self._asked))
        connect(self._socket, self._address.host, self._address.port, self._secret, _CONNECT_SECONDS)

    def _result(self, reference: Any) -> Any:
        """Waits for a result of the actor.

        Raises:
            Disconnected: it was killed first.
            RayError: it is gone.
        """
        while not self._is_killed.is_set():
            if self._ray.wait([reference], timeout=_LOOK_SECONDS)[0]:
                return self._ray.get(reference)
        raise Disconnected("the actor was killed")

    def _is_lost(self, error: Exception) -> bool:
        """Whether the actor, or its node, was lost: not the environment that it was to run in."""
        errors = self._ray.exceptions
        return isinstance(error, errors.RayActorError) and not isinstance(
            error, errors.ActorUnschedulableError
        )

    def _end(self) -> None:
        with suppress(Exception):  # It is gone, or the connection to the cluster.
            self._ray.kill(self.actor)
        self._has_ended.set()

    @property
    def is_waiting(self) -> bool:
        """See `WorkerPlace.is_waiting`."""
        return self._address is None and self.is_alive

    @property
    def never_ran(self) -> bool:
        """See `WorkerPlace.never_ran`."""
        return self._never_ran

    @property
    def pid(self) -> int:
        """See `WorkerPlace.pid`."""
        return 0 if self._address is None else self._address.pid

    @property
    def exitcode(self) -> int | None:
        """See `WorkerPlace.exitcode`; 1 for an actor that is gone."""
        return self._exitcode

    @property
    def is_alive(self) -> bool:
        """See `WorkerPlace.is_alive`."""
        return not self._has_ended.is_set()

    def describe_exit(self, exitcode: int | None) -> str:
        """See `WorkerPlace.describe_exit`."""
        return "its connection has ended, and the actor still runs" if exitcode is None else self._reason

    def wait(self, timeout: float) -> int | None:
        """See `WorkerPlace.wait`."""
        self._has_ended.wait(max(0.0, timeout))
        return self._exitcode

    def terminate(self) -> None:
        """See `WorkerPlace.terminate`."""
        self._is_killed.set()

    def kill(self) -> None:
        """See `WorkerPlace.kill`."""
        self._is_killed.set()
        if self._thread is None:
            self._end()
        elif self._thread is not threading.current_thread():
            self._thread.join(_KILLED_SECONDS)

    def disown(self) -> None:
        """See `WorkerPlace.disown`."""
        self.channel.close()
