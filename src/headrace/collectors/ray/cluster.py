"""The connection of this process to a Ray cluster."""

# Rules: collectors CY1, CY5

from __future__ import annotations

import logging
import threading

from headrace.weights.ray import import_ray

_lock = threading.Lock()
# Users of a connection that this module has made; the last one ends it.
_users = 0


class Cluster:
    """A use of the cluster that this process is connected to; connects, or starts a local cluster, if it is not.

    Args:
        address: of the cluster; None: see `RayOptions.address`.

    Raises:
        ImportError: Ray is not installed.
        ValueError: this process is connected to another cluster.
        ConnectionError: there is no cluster at this address.
    """

    def __init__(self, address: str | None) -> None:
        global _users
        self._ray = import_ray()
        with _lock:
            self._is_ours = not self._ray.is_initialized() or _users > 0
            if not self._ray.is_initialized():
                self._connect(address)
            else:
                self._check(address)
            _users += self._is_ours

    def _connect(self, address: str | None) -> None:
        self._ray.init(address=address, logging_level=logging.WARNING)

    def _check(self, address: str | None) -> None:
        if address in (None, "auto"):
            return
        present = self._ray.get_runtime_context().gcs_address
        if address != present:
            raise ValueError(
                f"backend_options: address: this process is connected to the Ray cluster {present}, got {address!r}; "
                "call ray.shutdown() first, or leave the address out"
            )

    def close(self) -> None:
        """Ends the use. The last one ends a connection that was made here; a cluster that ran before goes on."""
        global _users
        with _lock:
            if not self._is_ours:
                return
            self._is_ours = False
            _users -= 1
            if _users == 0:
                self._ray.shutdown()
