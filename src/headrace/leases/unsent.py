"""Bytes that the system has not taken yet, with the descriptors that travel with them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from itertools import islice

import cython

from headrace.leases.frames import Payload

if not cython.compiled:
    from headrace.kernels.kinds import Int

MOST_PIECES = 64
"""Systems take a limited number of pieces in one call."""


class Unsent:
    """Pieces of bytes in the order in which they are to be sent. The lock of the channel is held.

    Compiled also for Ctrl-C: no function of Python runs between a call of the system and the note of the bytes it took.

    Attributes:
        nbytes: of all pieces.

    >>> unsent = Unsent()
    >>> unsent.keep([b"abc", b"de"], (), 1)
    >>> pieces, _ = unsent.next_pieces()
    >>> [bytes(piece) for piece in pieces], unsent.nbytes
    ([b'bc', b'de'], 4)
    >>> unsent.drop(3)
    >>> unsent.nbytes
    1
    """

    def __init__(self) -> None:
        # Bytes, and the descriptors that belong to the first of them.
        self._pieces: deque[tuple[memoryview, list[int]]] = deque()
        self.nbytes = 0

    def keep(self, pieces: Sequence[Payload], descriptors: Sequence[int], sent: Int) -> None:
        """Adds bytes, all but the first `sent`; their descriptors go with the first byte."""
        # The caller may close its own copies.
        copies = [os.dup(each) for each in descriptors]
        for piece in pieces:
            if sent < len(piece):
                self._pieces.append((memoryview(piece)[sent:], copies))
                self.nbytes += len(piece) - sent
                copies = []
            sent = max(sent - len(piece), 0)

    def next_pieces(self) -> tuple[list[memoryview], list[int]]:
        """Returns pieces for one call of the system, and the descriptors of the first."""
        first, descriptors = self._pieces[0]
        pieces = [first]
        # Pieces up to the next one with descriptors, which go with its first byte.
        for piece, others in islice(self._pieces, 1, MOST_PIECES):
            if others:
                break
            pieces.append(piece)
        return pieces, descriptors

    def drop(self, sent: Int) -> None:
        """Removes bytes that the system has taken, with the descriptors of the first of them."""
        _close(self._pieces[0][1])
        self.nbytes -= sent
        while sent:
            piece, _ = self._pieces[0]
            if sent < len(piece):
                self._pieces[0] = (piece[sent:], [])
                return
            sent -= len(piece)
            self._pieces.popleft()

    def close(self) -> None:
        """Closes the descriptors that were not sent."""
        for _, descriptors in self._pieces:
            _close(descriptors)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
