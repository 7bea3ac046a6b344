"""A receiver of weights from a server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.errors import Closed, HeadraceError
from headrace.leases.frames import ProtocolError
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.session import Session
from headrace.server.messages.requests import AwaitVersion, GetWeights
from headrace.weights.layout import WeightLayout

_RETRY_SECONDS = 1.0
_LEAVING_SECONDS = 1.0


class ServerReceiver:
    """Receiver of `server.Weights`, made by `Weights.receiver`; it can be pickled.

    From the first look at `version` on a thread of it waits for newer versions, so a look costs no message. When the
    server is gone, the version stays, and the thread tries to reach the server again.

    Args:
        access: to the server.
        name: of the weights there.
        layout: of a set.
    """

    def __init__(self, access: ServerAccess, name: str, layout: WeightLayout) -> None:
        self._access = access
        self._name = name
        self._layout = layout
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._thread: threading.Thread | None = None
        self._version: int | None = None
        self._closing = threading.Event()

    @property
    def version(self) -> int:
        """The number of the newest set, as far as it is known here: one read of an attribute.

        A publication is known within the time of a message.

        Raises:
            Closed: after `close`.
            Disconnected, DeadlineExceeded: the server was not reached, at the first look.
        """
        version = self._version
        if version is None or self._closing.is_set():
            version = self._watch()
        return version

    def _watch(self) -> int:
        version = int(self._connected().repeated(AwaitVersion(weights=self._name, known=-1)).value)
        with self._lock:
            if self._version is None:
                self._version = version
                self._thread = threading.Thread(
                    target=self._run, name="headrace-weight-versions", daemon=True
                )
                self._thread.start()
            return self._version

    def _connected(self) -> Session:
        with self._lock:
            if self._closing.is_set():
                raise Closed("this receiver is closed")
            if self._session is None:
                self._session = Session(self._access)
            return self._session

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                request = AwaitVersion(weights=self._name, known=self._version or 0)
                self._note(self._connected().lasting(request).value)
            except HeadraceError:
                self._closing.wait(_RETRY_SECONDS)
            except Exception:  # The server has no such weights any more.
                return

    def _note(self, version: int) -> None:
        with self._lock:
            self._version = max(version, self._version or 0)

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest set, and the set, whose arrays belong to the caller.

        Raises:
            Closed: after `close`.
            Disconnected, DeadlineExceeded: the server was not reached in time.
        """
        answer, payload = self._connected().exchanged(GetWeights(weights=self._name))
        if len(payload) != self._layout.nbytes:
            raise ProtocolError(
                f"expected weights of {self._layout.nbytes} bytes, got {len(payload)}; the receiver is of others"
            )
        data = np.frombuffer(bytearray(payload) if isinstance(payload, bytes) else payload, np.uint8)
        if self._version is not None:
            self._note(answer.value)
        return answer.value, self._layout.tree(place.view(data, 0) for place in self._layout.places)

    def close(self) -> None:
        """Ends the receiver. A second call does nothing."""
        self._closing.set()
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.abandon()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_LEAVING_SECONDS)

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None:
            self.close()

    def __reduce__(self) -> tuple[Callable[..., ServerReceiver], tuple[Any, ...]]:
        return ServerReceiver, (self._access, self._name, self._layout)
