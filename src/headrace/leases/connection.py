"""Pages of a store that one peer holds: those of its writers, and those that it reads in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from headrace.leases.checking import LeaseError
from headrace.leases.frames import Frame
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.messages import Commit, Pin, Return, Unpin
from headrace.leases.payload import unpacked_columns
from headrace.store.store import Store


class LeaseConnection:
    """The writers and the pins of one peer. However the connection ends, `close` returns all leases and pins.

    Args:
        store: of the pages.
        send: sends messages to the peer, in one piece.

    Attributes:
        grantors: maps the number of a writer to its grantor.
    """

    def __init__(self, store: Store, send: Callable[..., None]) -> None:
        self._store = store
        self._send = send
        self._pins: Counter[int] = Counter()
        self.grantors: dict[int, LeaseGrantor] = {}

    def take(self, frame: Frame) -> None:
        """Processes a message of the peer.

        Raises:
            LeaseError: the message breaks the protocol; nothing changed.
            StoreFull, Closed: see `LeaseGrantor.commit`.
        """
        match frame.message:
            case Commit() as commit:
                grantor = self._grantor(commit.writer)
                if frame.payload:
                    signature = self._store.signature
                    grantor.commit(
                        commit,
                        *unpacked_columns(frame.payload, commit, signature, grantor.lanes, grantor.observed),
                    )
                else:
                    grantor.commit(commit)
            case Return() as message:
                self._grantor(message.writer).take_back(message)
            case Unpin(pages=pages):
                self._unpin(pages)
            case message:
                raise LeaseError(f"expected a message of a writer or reader, got {type(message).__name__}")

    def _grantor(self, writer: Any) -> LeaseGrantor:
        if writer not in self.grantors:
            raise LeaseError(f"writer: expected one of {sorted(self.grantors)}, got {writer}")
        return self.grantors[writer]

    # ---- pins ------------------------------------------------------------------------------------------------------

    def pin(self, pages: Sequence[int]) -> None:
        """Pins pages, which must be held now, for the peer: it may read them in place until it unpins them."""
        with self._store.lock:
            for page in pages:
                self._store.pins.pin_page(page, 1)
            self._pins.update(pages)
        self._send(Pin(pages=list(pages)))

    def _unpin(self, pages: Sequence[int]) -> None:
        returned = Counter(pages)
        with self._store.lock:
            if not returned <= self._pins:
                raise LeaseError("pages: expected pages that are pinned for this reader")
            self._pins -= returned
            for page in pages:
                self._store.release(page)

    # ---- pages that are owed ---------------------------------------------------------------------------------------

    @property
    def owes_pages(self) -> bool:
        """Whether a writer waits for a page that was not free."""
        return any(grantor.owes_pages for grantor in self.grantors.values())

    def lease_owed(self) -> None:
        """See `LeaseGrantor.lease_owed`."""
        for grantor in self.grantors.values():
            grantor.lease_owed()

    def close(self) -> None:
        """Returns all pages and pins to the store; committed rows stay. A second call does nothing."""
        for grantor in self.grantors.values():
            grantor.close()
        with self._store.lock:
            pinned, self._pins = self._pins, Counter()
            for page in pinned.elements():
                self._store.release(page)
