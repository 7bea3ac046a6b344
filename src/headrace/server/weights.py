"""Weights for collectors on other machines, through a server."""

# Rules: collectors CW4, CW7

from __future__ import annotations

import ssl
from typing import Any

from headrace.checks import check_kind, check_timeout
from headrace.closing import Closing
from headrace.server.addresses import parse_address
from headrace.server.auth import token_bytes
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.weight_receiver import ServerReceiver
from headrace.server.weight_core import WeightCore

_TIMEOUT_SECONDS = 30.0


class Weights(Closing):
    """Publisher of weights to other processes and machines. The first set is published at once as version 0.

    Give it to a `Server` under a name, and receivers made with the server's address to the processes that act.

    Args:
        weights: a pytree of arrays (NumPy, torch, JAX); its names, shapes and dtypes are those of all later sets.

    Raises:
        SpecError: a leaf is not an array; the message has its path.
        ValueError: a set is larger than 1 GiB.

    >>> import headrace as hr
    >>> import numpy as np
    >>> weights = hr.server.Weights({"w": np.zeros(2)})
    >>> with hr.Server({"policy": weights}) as server:
    ...     receiver = weights.receiver(server.address, "policy")
    ...     version = weights.publish({"w": np.ones(2)})
    ...     receiver.read()
    ...     receiver.close()
    (1, {'w': array([1., 1.])})
    """

    def __init__(self, weights: Any) -> None:
        self._core = WeightCore(weights)

    @property
    def version(self) -> int:
        """The number of the newest set."""
        return self._core.newest.version

    def publish(self, weights: Any, *, version: int | None = None) -> int:
        """Makes `weights` the newest set without waiting for readers. After the call the caller may change its arrays.

        Args:
            weights: a pytree of arrays like the first one.
            version: its number, larger than the last one; None for the next number.

        Returns:
            The number.

        Raises:
            SpecError: names, shapes or dtypes differ; the message has the path. Nothing is published.
            TypeError, ValueError: `version` is not an integer above the last one and below 2^31.
            Closed: after `close`.
        """
        return self._core.publish(weights, version)

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest set, and a copy of the set."""
        version, data = self._core.newest
        copy = data.copy()
        return version, self._core.layout.tree(place.view(copy, 0) for place in self._core.layout.places)

    def receiver(
        self,
        address: str,
        name: str,
        *,
        token: str | bytes | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float | None = _TIMEOUT_SECONDS,
    ) -> ServerReceiver:
        """Returns a new receiver, which can be pickled to other processes and machines. It connects when it is used.

        Args:
            address: of the server, as the receiving machine reaches it.
            name: under which the server has these weights.
            token: the secret of the server; it is pickled with the receiver.
            tls: see `Client`; a receiver with one cannot be pickled.
            timeout: seconds for a connection and for a read; None waits without limit.

        Raises:
            ValueError, TypeError: not an address, name or timeout.
        """
        access = ServerAccess(parse_address(address), token_bytes(token), tls, check_timeout(timeout))
        return ServerReceiver(access, check_kind("name", name, str), self._core.layout)

    def close(self) -> None:
        """Ends publishing. Receivers can read the last set as long as the server runs. A second call does nothing."""
        self._core.is_closed = True


def core_of(weights: Weights) -> WeightCore:
    """Returns the inside of weights, for the server that shares them."""
    return weights._core
