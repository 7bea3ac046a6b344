"""Vector steps that are sent together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.leases.frames import Payload
from headrace.server.client.writers.lane_lengths import LaneLengths
from headrace.server.client.writers.operation_use import NO_USE, Use
from headrace.server.client.writers.step_memory import SharedSteps, StepMemory
from headrace.server.messages.columns import packed_arrays


class StepBuffer:
    r"""Collects vector steps until they are sent.

    Args:
        memory: for them.

    Attributes:
        count: number of steps.
        use: of these.
        first: row of the first of them; the rows before are those of operations.
        lengths: of the lanes after all operations and these. `OperationLog.add` changes all of these.

    >>> import numpy as np
    >>> from headrace.spec import Signature
    >>> buffer = StepBuffer(StepMemory(Signature.like({"n": np.int8(0)}), lanes=2, shared_nbytes=0))
    >>> buffer.add({"n": np.array([1, 2])}, NO_USE); buffer.add({"n": np.array([3, 4])}, NO_USE)
    >>> buffer.packed(), buffer.count
    (b'\x01\x02\x03\x04', 2)
    """

    def __init__(self, memory: StepMemory) -> None:
        self._memory = memory
        self.count, self.use = 0, NO_USE
        self.lengths = LaneLengths.of(memory.lanes)
        self._begin()

    def _begin(self) -> None:
        """Takes another block: that of the last steps is their payload, which may have to be sent again."""
        block = self._memory.block()
        # No call between these, as in `OperationLog.add`.
        self._block, self._columns, self.first = block, block.columns, 0

    @property
    def is_full(self) -> bool:
        """Whether these steps must be sent before another one comes."""
        return self.count > 0 and self.first + self.count == self._block.capacity

    def add(self, step: Mapping[str, Any], use: Use) -> None:
        """Copies a step: columns `[lanes, ...]`, or without that axis for one lane."""
        self._write(step)
        before = self.use
        more = Use(before.steps + use.steps, before.finals + use.finals, before.items + use.items)
        lengths = self.lengths.after_step()
        # No call between these, as in `OperationLog.add`.
        self.count += 1
        self.use, self.lengths = more, lengths

    def _write(self, step: Mapping[str, Any]) -> None:
        """Copies a step behind the others."""
        if not self.count and self.first:
            if self.first == self._block.capacity:
                self._begin()
            elif self._block.offset < 0:
                self.first = 0  # The operations have copies.
        place = self.first + self.count
        for name, column in self._columns.items():
            column[place] = step[name]

    def packed(self) -> Payload | SharedSteps:
        """Returns the steps, which stay until `OperationLog.add`."""
        if self._block.offset >= 0:
            return SharedSteps(self._block, self.first, self.count)
        if self.is_full:
            # The columns lie one behind the other: nothing is copied.
            return self._block.memory.data
        return packed_arrays(column[: self.count] for column in self._columns.values())

    def packed_only(self, step: Mapping[str, Any], payload: bytes) -> Payload | SharedSteps:
        """Returns one step, which is not collected, with other values behind it; the buffer is empty.

        Args:
            step: see `add`.
            payload: the other values.
        """
        self._write(step)
        if self._block.offset >= 0:
            steps = SharedSteps(self._block, self.first, 1)
            steps.payload = payload
            return steps
        return packed_arrays(column[:1] for column in self._columns.values()) + payload
