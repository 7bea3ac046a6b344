"""The actor in which a worker runs."""

# Rules: collectors CY1, CX8

from __future__ import annotations

import os
import threading
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.ray.arriving_weights import ArrivingWeights
from headrace.collectors.ray.channels import ActorEnd
from headrace.collectors.ray.connecting import Listener, Secret
from headrace.collectors.ray.large_commits import HeldRows
from headrace.collectors.worker.inbox import WorkerInbox
from headrace.collectors.worker.main import serve
from headrace.errors import Disconnected
from headrace.weights.ray import import_ray

_GRACE_SECONDS = 1.0


class ActorAddress(NamedTuple):
    """Where an actor listens.

    Attributes:
        host, port: of its connection.
        pid: of its process.
    """

    host: str
    port: int
    pid: int


class WorkerActor:
    """Runs a worker for the collector that connects to it.

    Args:
        secret: of the connection.
    """

    def __init__(self, secret: Secret) -> None:
        self._host: str = import_ray().util.get_node_ip_address()
        self._listener = Listener(self._host, secret)
        self._weights = ArrivingWeights()
        self._held_rows = HeldRows()
        self._has_ended = threading.Event()

    def address(self) -> ActorAddress:
        """Returns where the collector is to connect."""
        return ActorAddress(self._host, self._listener.port, os.getpid())

    def run(self, timeout: float) -> int:
        """Serves the collector until one of the two ends; returns the exit code that a process would have.

        Args:
            timeout: seconds until the collector connects.
        """
        channel = ActorEnd(self._listener.accept(timeout), self._weights, self._held_rows)
        try:
            return serve(channel, partial(self._watch, channel))
        finally:
            self._has_ended.set()
            channel.close()

    def take_weights(self, data: NDArray[np.uint8] | None, number: int, sequence: int) -> None:
        """See `ArrivingWeights.take`; Ray has resolved the reference to the data."""
        self._weights.take(data, number, sequence)

    def rows(self, number: int) -> NDArray[np.uint8]:
        """Returns rows of a commit; Ray copies them into its object store once, as they are."""
        return self._held_rows.take(number)

    def _watch(self, channel: ActorEnd, inbox: WorkerInbox) -> None:
        """Reports steps. Ends this process when the collector is gone, also in the middle of a step."""
        inbox.wait_until_orphaned(lambda: _report_step(channel))
        if not self._has_ended.wait(_GRACE_SECONDS):
            os._exit(1)


def _report_step(channel: ActorEnd) -> bool:
    """Returns whether the collector is there."""
    try:
        channel.report_step()
    except Disconnected:
        return False
    return True
