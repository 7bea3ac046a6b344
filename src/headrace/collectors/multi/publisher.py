"""The learner's end of the weights of all workers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import cloudpickle

from headrace.collectors.messages import Ready, WeightsAt
from headrace.collectors.weight_arguments import WeightCheck
from headrace.weights import SharedMemory


class Publisher:
    """Publishes weights to all workers in one block of shared memory. Thread-safe.

    Args:
        ready: describes the policy of a worker.
        send: sends a message with descriptors to all workers.
    """

    def __init__(self, ready: Ready, send: Callable[[WeightsAt, tuple[int, ...]], None]) -> None:
        self._check = WeightCheck(cloudpickle.loads(ready.weights) if ready.weights else None, ready.policy)
        self._send = send
        self._scheme: SharedMemory | None = None
        self._lock = threading.Lock()

    def publish(self, weights: Any) -> int:
        """Makes these weights the newest and returns their version.

        Raises:
            TypeError: the policy has no weights.
            SpecError: names, shapes or dtypes differ; nothing is published.
        """
        self._check(weights)
        with self._lock:
            if self._scheme is None:
                scheme = SharedMemory(weights)
                receiver = scheme.receiver()
                try:
                    self._send(WeightsAt(layout=cloudpickle.dumps(receiver.layout)), (receiver.descriptor,))
                finally:
                    receiver.close()
                self._scheme = scheme
            return self._scheme.publish(weights)

    def close(self) -> None:
        """Releases the memory."""
        with self._lock:
            if self._scheme is not None:
                self._scheme.close()
