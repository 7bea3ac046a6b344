"""A batch of which shards have drawn some parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.replay.shards.merging import Part, Request
from headrace.replay.shards.split import Records, Split, is_open, largest_batch, most_now

_NO_SHARD = -1


class PartialBatch:
    """Draws of a batch: which shard serves each of them, and those that are served.

    Args:
        request: that it is to serve.
        num_shards: of the replay.

    Attributes:
        request: see above.
        parts: that were drawn.
        is_in_turn: whether any shard could serve any draw.
        sizes: int64[shards]: items of each shard before the draws.
    """

    def __init__(self, request: Request, num_shards: int) -> None:
        self.request = request
        self.parts: list[Part] = []
        self.is_in_turn = False
        self.sizes = np.zeros(num_shards, np.int64)
        self._owners = np.full(request.batch_size, _NO_SHARD)
        self._is_drawn = np.zeros(request.batch_size, np.bool_)
        self._shares = np.ones(request.batch_size)
        self._max_times = 0
        self._is_distinct = False
        # By shard: the largest batch that it can ever serve, and the largest that it can serve soon.
        self._most = np.full(num_shards, np.inf)
        self._soon = np.zeros(num_shards)

    @property
    def is_complete(self) -> bool:
        """Whether every draw is served."""
        return bool(self._is_drawn.all())

    @property
    def missing(self) -> int:
        """Number of draws without a shard."""
        return int(np.count_nonzero(self._owners == _NO_SHARD))

    def assign(self, found: Split, records: Records) -> None:
        """Gives a shard to each draw that has none.

        Args:
            found: the shards.
            records: of the table, from which they were found.
        """
        places = np.flatnonzero(self._owners == _NO_SHARD)
        self._owners[places] = found.owners
        self._shares[places] = found.shares[found.owners]
        self.is_in_turn = found.is_in_turn
        for shard, record in enumerate(records):
            if record is not None:
                self.sizes[shard] = record.size if is_open(record) else 0
                self._is_distinct = record.is_distinct
                self._max_times = record.max_times_sampled
                # Two batches of different items may have the same ones.
                self._most[shard] = np.inf if record.is_distinct else largest_batch(record)
                self._soon[shard] = most_now(record)

    def release(self, shard: int) -> None:
        """Takes from a shard the draws that it has not served; a batch of different items begins anew."""
        if self._is_distinct:
            self._is_drawn[:] = False
            self._owners[:] = _NO_SHARD
            self.parts.clear()
        self._owners[(self._owners == shard) & ~self._is_drawn] = _NO_SHARD

    def _wanted(self) -> NDArray[np.int64]:
        return np.bincount(self._owners[~self._is_drawn & (self._owners >= 0)], minlength=len(self.sizes))

    def ready_draws(self) -> list[tuple[int, int]]:
        """Returns shards and the draws that they can serve at once, all at the same time.

        There are none while a shard has to be waited for; nor where items leave, for such a draw must not be lost if
        Ctrl-C comes before all have answered.
        """
        wanted = self._wanted()
        if self.is_in_turn or self._max_times or (wanted > np.minimum(self._soon, self._most)).any():
            return []
        return [(int(shard), int(wanted[shard])) for shard in np.flatnonzero(wanted)]

    def has_to_wait(self, shard: int) -> None:
        """Notes that a shard could not serve its draws at once."""
        self._soon[shard] = 0

    def next_draws(self) -> tuple[int, int] | None:
        """Returns a shard and the number of draws that it is asked for next; None if no shard has any to serve.

        A shard that has to be waited for comes first: if the wait ends without it, the others have drawn nothing.
        """
        wanted = self._wanted()
        if not wanted.any():
            return None
        waits = wanted > self._soon
        shard = int(np.argmax(np.where(wanted > 0, 1 + waits, 0)))
        return shard, int(min(wanted[shard], max(1, self._most[shard])))

    def add(self, shard: int, sample: ReplaySample) -> None:
        """Adds draws of a shard."""
        count = len(sample.info.keys)
        places = np.flatnonzero((self._owners == shard) & ~self._is_drawn)[:count]
        self._is_drawn[places] = True
        self.parts.append(Part(shard, places, sample, self._shares[places], self._max_times))
