"""A batch that is complete, until the call that asked for it returns it."""

# Rules: collectors CB8, CX7

from __future__ import annotations

import threading
from typing import NamedTuple

from headrace.collectors.batches.batch import Batch
from headrace.collectors.loop.step_counts import StepCounts


class UnreturnedBatch(NamedTuple):
    """A complete batch. Where Ctrl-C ends the call that is about to return it, the next one of its thread does.

    Attributes:
        batch: the batch.
        counts: of its steps; None: they are counted.
        thread: the identifier of the thread that collected it; None: any thread may return it.
    """

    batch: Batch
    counts: StepCounts | None = None
    thread: int | None = None

    @property
    def is_of_this_thread(self) -> bool:
        """Whether a call of this thread returns it: another thread may be about to do so, which collected it."""
        return self.thread in (None, threading.get_ident())
