"""Vector steps that are sent together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.server.messages.columns import packed_arrays
from headrace.spec import Signature

_NBYTES = 1 << 18
_MOST_STEPS = 256


class StepBuffer:
    r"""Collects vector steps until they are sent.

    Args:
        signature: of a step.
        lanes: number of lanes.

    Attributes:
        count: number of steps.

    >>> buffer = StepBuffer(Signature.like({"n": np.int8(0)}), 2)
    >>> buffer.add({"n": np.array([1, 2])}); buffer.add({"n": np.array([3, 4])})
    >>> buffer.take(), buffer.count
    (b'\x01\x02\x03\x04', 0)
    """

    def __init__(self, signature: Signature, lanes: int) -> None:
        self._capacity = max(1, min(_MOST_STEPS, _NBYTES // max(1, lanes * signature.nbytes)))
        self._columns = {
            name: np.zeros((self._capacity, lanes, *spec.shape), spec.dtype)
            for name, spec in signature.columns.items()
        }
        self._lanes = lanes
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further step fits."""
        return self.count == self._capacity

    def add(self, step: Mapping[str, Any]) -> None:
        """Copies a step: columns `[lanes, ...]`, or without that axis for one lane."""
        count = self.count
        for name, column in self._columns.items():
            column[count] = step[name]
        self.count = count + 1

    def take(self) -> bytes:
        """Returns the payload of the steps and empties the buffer."""
        payload = packed_arrays([column[: self.count] for column in self._columns.values()])
        self.count = 0
        return payload
