"""The steps of an operation, compressed column by column."""

from __future__ import annotations

from itertools import accumulate

from headrace.leases.frames import Payload
from headrace.server.compression.packing import PackedPayload, PayloadPacker
from headrace.server.messages.operations import AppendEnds, AppendSteps, Operation
from headrace.spec import Signature


class PackedSteps:
    """Packs the payloads of one writer's operations.

    Args:
        signature: of a step.
        lanes: number of lanes.

    >>> import numpy as np
    >>> from headrace.server.compression.choice import CompressedColumns
    >>> steps = PackedSteps(Signature.like({"frame": np.zeros(7056, np.uint8), "reward": np.float32(0)}), lanes=1)
    >>> operation = AppendSteps(writer=0, sequence=2, steps=2, version=0)
    >>> before, parts = steps.packed(PayloadPacker(CompressedColumns(("",))), operation, bytes(2 * 7060))
    >>> [raw for raw, _ in before[0].buffers]
    [14112, 8, 0]
    """

    def __init__(self, signature: Signature, lanes: int) -> None:
        self._paths: list[str | None] = [*signature.columns, None]
        self._sizes = [lanes * spec.nbytes for spec in signature.columns.values()]

    def packed(self, packer: PayloadPacker, operation: Operation, payload: Payload) -> PackedPayload:
        """Returns the payload of an operation as it travels; values behind the steps are not compressed."""
        match operation:
            case AppendSteps(steps=count):
                pass
            case AppendEnds():
                count = 1
            case _:
                return PackedPayload((), [memoryview(payload)])
        data = memoryview(payload)
        ends = list(accumulate((count * size for size in self._sizes), initial=0))
        parts = [data[begin:end] for begin, end in zip(ends, [*ends[1:], len(data)], strict=True)]
        return packer.packed(parts, self._paths)
