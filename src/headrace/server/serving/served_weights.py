"""Weights as the clients of a server use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.leases.selector import PeerSelector
from headrace.server.messages.answers import Count
from headrace.server.messages.requests import AwaitVersion, GetWeights, OfWeights
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.requests.request_numbers import check_unused
from headrace.server.weight_core import WeightCore

_MOST_WAITING = 1024


class ServedWeights:
    """The newest set of weights, and the clients that wait for a newer one. Used in the selector's thread.

    Args:
        core: of the weights.
        selector: of the server.

    Attributes:
        core: see above.
    """

    def __init__(self, core: WeightCore, selector: PeerSelector) -> None:
        self.core = core
        self._selector = selector
        self._waiting: dict[object, tuple[int, Callable[[int], None]]] = {}
        core.watch(self._call)

    def _call(self) -> None:
        """Asks for a call of `_tell`; any thread calls it."""
        self._selector.call_soon(self._tell)

    def _tell(self) -> None:
        version = self.core.newest.version
        for key, (known, call) in tuple(self._waiting.items()):
            if version > known:
                del self._waiting[key]
                call(version)

    def wait(self, key: object, known: int, call: Callable[[int], None]) -> None:
        """Makes a call with the newest version when it is above `known`.

        Args:
            key: of this wait, for `leave`.
            known: version that the caller has.
            call: made once.
        """
        self._waiting[key] = known, call
        self._tell()

    def leave(self, key: object) -> None:
        """Ends a wait."""
        self._waiting.pop(key, None)

    def close(self) -> None:
        """Watches the weights no more."""
        self.core.unwatch(self._call)


class ClientWeights:
    """Answers the requests of one client for weights. Used in the selector's thread.

    Args:
        weights: of the server, by name.
        sender: of answers.
    """

    def __init__(self, weights: Mapping[str, ServedWeights], sender: BatchSender) -> None:
        self._weights = weights
        self._sender = sender
        self._waiting: dict[int, ServedWeights] = {}

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a newer version."""
        return len(self._waiting)

    def take(self, request: OfWeights) -> None:
        """Answers a request, now or when there is a newer version.

        Raises:
            KeyError: no such weights.
            LeaseError: a request waits under its number.
            RuntimeError: too many requests wait.
        """
        served = self._weights.get(request.weights)
        if served is None:
            raise KeyError(f"no weights {request.weights!r}; there are {', '.join(map(repr, self._weights))}")
        number = request.number
        match request:
            case GetWeights():
                version, data = served.core.newest
                self._sender.send(Count(number=number, value=version), parts=[data.data])
            case AwaitVersion(known=known):
                check_unused((number,), self._waiting)
                if len(self._waiting) >= _MOST_WAITING:
                    raise RuntimeError(f"expected at most {_MOST_WAITING} waits for weights of one client")
                self._waiting[number] = served
                served.wait((self, number), known, lambda version: self._answer(number, version))

    def _answer(self, number: int, version: int) -> None:
        self._waiting.pop(number, None)
        self._sender.send(Count(number=number, value=version))

    def cancel(self, number: int) -> None:
        """Ends the wait of a request without an answer."""
        served = self._waiting.pop(number, None)
        if served is not None:
            served.leave((self, number))

    def close(self) -> None:
        """Ends all waits. A second call does nothing."""
        for number in tuple(self._waiting):
            self.cancel(number)
