"""Weights as the clients of a server use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.errors import SpecError
from headrace.leases.selector import PeerSelector
from headrace.server.messages.answers import Count
from headrace.server.messages.requests import AwaitVersion, GetWeights, OfWeights
from headrace.server.serving.batches.batch_sender import BatchSender
from headrace.server.serving.requests.request_numbers import check_unused
from headrace.server.weight_core import WeightCore

_MOST_WAITING = 1024
# No version: the set that a client has is of another publisher.
_NONE = -1


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
            if version != known:
                del self._waiting[key]
                call(version)

    def wait(self, key: object, known: int, publisher: int, call: Callable[[int], None]) -> None:
        """Makes a call with the newest version when it is not the set that the caller has.

        Args:
            key: of this wait, for `leave`.
            known: version that the caller has.
            publisher: of that set; 0: any.
            call: made once.
        """
        self._waiting[key] = known if publisher in (0, self.core.publisher) else _NONE, call
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
            known = ", ".join(map(repr, self._weights)) or "none"
            raise KeyError(f"no weights {request.weights!r}; there are {known}")
        number = request.number
        match request:
            case GetWeights(layout=layout):
                # Rules: server CL8
                if layout != served.core.layout.fingerprint:
                    raise SpecError(
                        f"weights {request.weights!r}: the server has others than the receiver was made for, with "
                        "other names, shapes or dtypes; make a receiver of those that are served"
                    )
                version, data = served.core.newest
                answer = Count(number=number, value=version, publisher=served.core.publisher)
                self._sender.send(answer, parts=[data.data])
            case AwaitVersion(known=other, publisher=publisher):
                check_unused((number,), self._waiting)
                if len(self._waiting) >= _MOST_WAITING:
                    raise RuntimeError(f"expected at most {_MOST_WAITING} waits for weights of one client")
                self._waiting[number] = served
                served.wait(
                    (self, number), other, publisher, lambda version: self._answer(number, version, served)
                )

    def _answer(self, number: int, version: int, served: ServedWeights) -> None:
        self._waiting.pop(number, None)
        self._sender.send(Count(number=number, value=version, publisher=served.core.publisher))

    def cancel(self, number: int) -> None:
        """Ends the wait of a request without an answer."""
        served = self._waiting.pop(number, None)
        if served is not None:
            served.leave((self, number))

    def close(self) -> None:
        """Ends all waits. A second call does nothing."""
        for number in tuple(self._waiting):
            self.cancel(number)
