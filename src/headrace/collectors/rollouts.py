"""Complete rollouts of a worker that the collector has not handed out yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headrace.collectors.batch import Batch
from headrace.collectors.rollout import EpisodeLedger, RolloutBuffer

Episodes = list[tuple[float, int]]


@dataclass(frozen=True)
class InSlot:
    """A complete rollout that was not handed out yet."""

    buffer: RolloutBuffer
    finals: int

    @contextmanager
    def taken(self, ledger: EpisodeLedger) -> Iterator[tuple[Batch, Episodes]]:
        """The batch, copied out, and the episodes that ended in it; an error in the block undoes their numbers."""
        with ledger.undone_on_error():
            self.buffer.num_finals = self.finals
            batch = self.buffer.batch(ledger, 0)
            yield batch, ledger.take_finished()

    @property
    def frames(self) -> int:
        """Its transitions."""
        self.buffer.step = self.buffer.steps
        return self.buffer.frames


@dataclass(frozen=True)
class CopiedOut:
    """A complete rollout of a replay that was not handed out yet."""

    batch: Batch
    episodes: Episodes

    @contextmanager
    def taken(self, _: EpisodeLedger) -> Iterator[tuple[Batch, Episodes]]:
        """The batch, and the episodes that ended in it."""
        yield self.batch, self.episodes

    @property
    def frames(self) -> int:
        """Its transitions."""
        return self.batch.frames
