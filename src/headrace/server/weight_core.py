"""The newest set of weights of a publisher, as a server shares it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.errors import Closed
from headrace.leases.frames import LARGEST_PAYLOAD
from headrace.weights.layout import WeightLayout
from headrace.weights.versions import next_version


class WeightSet(NamedTuple):
    """A set of weights, which does not change.

    Attributes:
        version: of the set.
        data: its arrays, laid out as the layout says.
    """

    version: int
    data: NDArray[np.uint8]


class WeightCore:
    """The inside of `Weights`, for itself and for the servers that share it. Thread-safe.

    Args:
        weights: the first set, version 0.

    Attributes:
        layout: of every set.
        newest: the newest set.
        publisher: a random number > 0, which tells these weights from others with the same versions.
        is_closed: whether publishing has ended.

    Raises:
        SpecError: a leaf is not an array.
        ValueError: a set is larger than a message can be.
    """

    def __init__(self, weights: Any) -> None:
        self.layout = WeightLayout(weights)
        if self.layout.nbytes > LARGEST_PAYLOAD:
            raise ValueError(
                f"weights: expected at most {LARGEST_PAYLOAD} bytes, got {self.layout.nbytes}; publish parts apart"
            )
        self._lock = threading.Lock()
        self._watchers: tuple[Callable[[], None], ...] = ()
        self.is_closed = False
        self.publisher = secrets.randbits(62) | 1
        self.newest = WeightSet(0, self._copied(weights))

    def _copied(self, weights: Any) -> NDArray[np.uint8]:
        arrays = self.layout.arrays(weights)
        # A new one for each set: readers may still be sent the last.
        data = np.empty(self.layout.nbytes, np.uint8)
        for place, array in zip(self.layout.places, arrays, strict=True):
            np.copyto(place.view(data, 0), array)
        return data

    def publish(self, weights: Any, version: int | None) -> int:
        """See `Weights.publish`."""
        data = self._copied(weights)
        with self._lock:
            if self.is_closed:
                raise Closed("these weights are closed: expected publish before close")
            number = next_version(self.newest.version, version)
            self.newest = WeightSet(number, data)
            for call in self._watchers:
                call()
        return number

    def watch(self, call: Callable[[], None]) -> None:
        """Makes a call whenever there is a new set; it must not raise."""
        with self._lock:
            self._watchers = (*self._watchers, call)

    def unwatch(self, call: Callable[[], None]) -> None:
        """Makes a call of `watch` no more."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each != call)
