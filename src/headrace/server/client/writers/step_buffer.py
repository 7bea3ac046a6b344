"""Vector steps that are sent together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.leases.frames import Payload
from headrace.server.client.writers.step_memory import SharedSteps, StepMemory
from headrace.server.messages.columns import packed_arrays


class StepBuffer:
    r"""Collects vector steps until they are sent.

    Args:
        memory: for them.

    Attributes:
        count: number of steps.

    >>> import numpy as np
    >>> from headrace.spec import Signature
    >>> buffer = StepBuffer(StepMemory(Signature.like({"n": np.int8(0)}), lanes=2, shared_nbytes=0))
    >>> buffer.add({"n": np.array([1, 2])}); buffer.add({"n": np.array([3, 4])})
    >>> buffer.take(), buffer.count
    (b'\x01\x02\x03\x04', 0)
    """

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self.count = 0
        self._begin()

    def _begin(self) -> None:
        """Takes another block: that of the last steps is their payload, which may have to be sent again."""
        self._block = self._memory.block()
        self._columns = self._block.columns
        # Steps before this one are taken.
        self._first = 0

    @property
    def is_full(self) -> bool:
        """Whether no further step fits."""
        return self._first + self.count == self._block.capacity

    def add(self, step: Mapping[str, Any]) -> None:
        """Copies a step: columns `[lanes, ...]`, or without that axis for one lane."""
        place = self._first + self.count
        for name, column in self._columns.items():
            column[place] = step[name]
        self.count += 1

    def take(self) -> Payload | SharedSteps:
        """Returns the steps and empties the buffer."""
        is_full, count = self.is_full, self.count
        self.count = 0
        steps: Payload | SharedSteps
        if self._block.offset >= 0:
            steps = SharedSteps(self._block, self._first, count)
            self._first += count
        elif is_full:
            # The columns lie one behind the other: nothing is copied.
            steps = self._block.memory.data
        else:
            return packed_arrays(column[:count] for column in self._columns.values())
        if is_full:
            self._begin()
        return steps

    def take_only(self, step: Mapping[str, Any], payload: bytes) -> Payload | SharedSteps:
        """Returns one step, which was not collected, with other values behind it; the buffer is empty.

        Args:
            step: see `add`.
            payload: the other values.
        """
        self.add(step)
        steps = self.take()
        if isinstance(steps, SharedSteps):
            steps.payload = payload
            return steps
        return b"".join((steps, payload))
