"""Weights that arrive at an actor, in memory that its worker reads."""

# Rules: collectors CW3, CY2

from __future__ import annotations

import os
import threading

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from headrace.collectors.messages import WeightsAt
from headrace.errors import Disconnected
from headrace.weights.board import WeightBoard
from headrace.weights.layout import WeightLayout

_ARRIVAL_SECONDS = 60.0


class ArrivingWeights:
    """Publishes the sets that arrive to the worker of this process. Thread-safe.

    Attributes:
        are_awaited: whether the worker waits for a set that was sent.
    """

    def __init__(self) -> None:
        # A bare one is right: the calls of an actor run in a pool of threads, to which Ctrl-C does not come.
        self._changed = threading.Condition()
        self._board: WeightBoard | None = None
        self._layout: WeightLayout | None = None
        self._sequence = 0
        self.are_awaited = False

    def open(self, message: WeightsAt) -> tuple[WeightsAt, int]:
        """Makes the memory; returns the message as the worker is to read it, and a descriptor for it."""
        with self._changed:
            self._layout = cloudpickle.loads(message.layout)
            self._board = WeightBoard(self._layout)
            self._changed.notify_all()
            return WeightsAt(layout=message.layout, address=0, addresses=1), os.dup(self._board.descriptor)

    def take(self, data: NDArray[np.uint8] | None, number: int, sequence: int) -> None:
        """Publishes a set, unless a newer one has arrived before it.

        Args:
            data: its arrays as the layout places them; None: the newest set has another number from now on.
            number: of the set.
            sequence: rises with every set.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._board is not None, _ARRIVAL_SECONDS)
            if self._board is None or self._layout is None or sequence <= self._sequence:
                return
            if data is None:
                self._board.renumber(number)
            else:
                self._board.publish([place.view(data, 0) for place in self._layout.places], number)
            self._sequence = sequence
            self._changed.notify_all()

    def wait_for(self, sequence: int) -> None:
        """Waits until this set, or a newer one, is published.

        Raises:
            Disconnected: it did not arrive.
        """
        with self._changed:
            self.are_awaited = True
            try:
                has_arrived = self._changed.wait_for(lambda: self._sequence >= sequence, _ARRIVAL_SECONDS)
            finally:
                self.are_awaited = False
        if not has_arrived:
            raise Disconnected(f"weights that were sent did not arrive within {_ARRIVAL_SECONDS:g} s")
