"""Vector steps that are sent together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.leases.frames import Payload
from headrace.server.messages.columns import packed_arrays
from headrace.spec import Signature

# A message costs the server as much processor time as 20 frames of 84x84x4 bytes; 1 MiB holds 37 of them.
_NBYTES = 1 << 20
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
        self._signature = signature
        self._capacity = max(1, min(_MOST_STEPS, _NBYTES // max(1, lanes * signature.nbytes)))
        self._lanes = lanes
        self.count = 0
        self._begin()

    def _begin(self) -> None:
        """Takes new memory: that of the last steps is their payload, which may have to be sent again."""
        rows, offset = self._capacity * self._lanes, 0
        self._block = np.empty(rows * self._signature.nbytes, np.uint8)
        self._columns: dict[str, NDArray[Any]] = {}
        for name, spec in self._signature.columns.items():
            flat = self._block[offset : offset + rows * spec.nbytes].view(spec.dtype.newbyteorder("<"))
            self._columns[name] = flat.reshape(self._capacity, self._lanes, *spec.shape)
            offset += flat.nbytes

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

    def take(self) -> Payload:
        """Returns the payload of the steps and empties the buffer."""
        is_full, count = self.is_full, self.count
        self.count = 0
        if not is_full:
            return packed_arrays([column[:count] for column in self._columns.values()])
        # The columns lie one behind the other: nothing is copied.
        payload = self._block.data
        self._begin()
        return payload
