"""The state of a queue at one instant, as its users see it."""

from __future__ import annotations

import msgspec


class BatchQueueInfo(msgspec.Struct, frozen=True, array_like=True):
    """A queue at one instant. A struct of msgspec, which is made, sent and read with each batch.

    Attributes:
        index: of the batch returned with it, from 0; from `statistics`, of the next batch.
        size: samples waiting, including those of the partial batch.
        samples_received: since the queue was made, from all senders.
        samples_delivered: in batches, and in the tail.
        blocked_sends: sends that had to wait for a place; the samples that a client sends in one message count as one.
        senders: open connections.
        buffers_replaced: batches returned with `copy=False` whose arrays were still alive when their slot was needed
            again.
    """

    index: int
    size: int
    samples_received: int
    samples_delivered: int
    blocked_sends: int
    senders: int
    buffers_replaced: int
