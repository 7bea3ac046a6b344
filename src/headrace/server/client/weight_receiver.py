"""A receiver of weights from a server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from headrace import forking
from headrace.errors import Closed
from headrace.leases.frames import ProtocolError
from headrace.server.client.connecting import ServerAccess
from headrace.server.client.session import Session
from headrace.server.messages.requests import AwaitVersion, GetWeights
from headrace.weights.layout import WeightLayout

_LOGGER = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_LEAVING_SECONDS = 1.0


class _Set(NamedTuple):
    """A set of weights: its version, and who published it (`Count`)."""

    version: int
    publisher: int


_NO_SET = _Set(0, 0)
# In place of the version of a set that another publisher has under the number of the one that was read.
_OF_ANOTHER = -1


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
        # As `version` shows it; None: not looked at yet.
        self._version: int | None = None
        # The newest set that is known here, and the one that the user has read, or else seen at the first look.
        self._newest = self._taken = _NO_SET
        self._closing = threading.Event()
        # Of the process that is connected.
        self._forks = forking.forks

    @property
    def version(self) -> int:
        """The number of the newest set, as far as it is known here: one read of an attribute.

        A publication is known within the time of a message. -1: another publisher has published a set under the number
        of the one that was read last; `read` returns it, and the number is shown from then on.

        Raises:
            Closed: after `close`, or in a process that was forked after the first look.
            Disconnected, DeadlineExceeded: the server was not reached, at the first look.
        """
        version = self._version
        # A forked child has no thread that would learn of newer versions.
        if version is None or self._closing.is_set() or self._is_inherited:
            version = self._watch()
        return version

    @property
    def _is_inherited(self) -> bool:
        return self._forks != forking.forks and self._session is not None

    def _watch(self) -> int:
        answer = self._connected().repeated(AwaitVersion(weights=self._name, known=-1))
        with self._lock:
            shown = self._version
            if shown is None:
                shown = self._show(_Set(answer.value, answer.publisher))
                self._thread = threading.Thread(
                    target=self._run, name="headrace-weight-versions", daemon=True
                )
                self._thread.start()
            return shown

    def _connected(self) -> Session:
        # Before the lock, which a thread of the parent may have held.
        if self._is_inherited:
            raise Closed(
                "this receiver is connected in the process from which this one was forked. Make one in the process "
                "that uses it, or pickle it there"
            )
        with self._lock:
            if self._closing.is_set():
                raise Closed("this receiver is closed")
            if self._session is None:
                self._session, self._forks = Session(self._access), forking.forks
            return self._session

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                known = self._newest
                request = AwaitVersion(weights=self._name, known=known.version, publisher=known.publisher)
                answer = self._connected().lasting(request)
                self._note(_Set(answer.value, answer.publisher), known)
            except Exception as error:  # Also of a server without these weights: another may take its place.
                _LOGGER.debug("weights %r: no news of versions: %s", self._name, error)
                self._closing.wait(_RETRY_SECONDS)

    def _note(self, found: _Set, known: _Set) -> None:
        """Notes the set of an answer, which may come late; `known` is the newest one at the time of the request.

        The numbers of one publisher rise. A smaller one than was known is that of another, which took its place.
        """
        with self._lock:
            if found.publisher == known.publisher != self._newest.publisher:
                # Another publisher took its place since (test_a_set_that_comes_late_is_not_taken_for_the_newest).
                found = self._newest
            elif found.publisher == self._newest.publisher and found.version >= known.version:
                found = max(found, self._newest)
            self._show(found)

    def _show(self, newest: _Set) -> int:
        """Shows the version of the newest set, and returns what is shown; the lock is held."""
        if self._taken is _NO_SET:
            self._taken = newest
        taken, self._newest = self._taken, newest
        is_hidden = newest.version == taken.version and newest.publisher != taken.publisher
        shown = self._version = _OF_ANOTHER if is_hidden else newest.version
        return shown

    def read(self) -> tuple[int, Any]:
        """Returns the version of the newest set, and the set, whose arrays belong to the caller.

        Raises:
            Closed: after `close`.
            Disconnected, DeadlineExceeded: the server was not reached in time.
            SpecError: the weights there have other names, shapes or dtypes.
        """
        known = self._newest
        request = GetWeights(weights=self._name, layout=self._layout.fingerprint)
        answer, payload = self._connected().exchanged(request)
        if len(payload) != self._layout.nbytes:
            raise ProtocolError(
                f"expected weights of {self._layout.nbytes} bytes, got {len(payload)}; the receiver is of others"
            )
        data = np.frombuffer(bytearray(payload) if isinstance(payload, bytes) else payload, np.uint8)
        self._taken = found = _Set(answer.value, answer.publisher)
        if self._version is not None:
            self._note(found, known)
        return answer.value, self._layout.tree(place.view(data, 0) for place in self._layout.places)

    def close(self) -> None:
        """Ends the receiver. A second call does nothing."""
        self._closing.set()
        if self._is_inherited:  # The connection is the parent's, of which a thread may have held the lock.
            return
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
