"""A live table as users see it."""

from __future__ import annotations

import numpy as np

from headrace.checks import check_count
from headrace.replay.replay import ReplayCore
from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.statistics import TableDistribution, TableStatistics
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.live_table import LiveTable


class TableView:
    """A live table of a replay; made by `Replay.table`."""

    def __init__(self, replay: ReplayCore, live: LiveTable) -> None:
        self._replay = replay
        self._live = live

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._live.name

    def __len__(self) -> int:
        self._replay.check_open()
        return len(self._live.ring)

    def statistics(self) -> TableStatistics:
        """Returns one frozen record."""
        with self._replay.lock:
            self._replay.check_open()
            return self._live.statistics()

    def distribution(self) -> TableDistribution:
        """Returns a frozen record of the items: rows, ages, times sampled, effective sample size.

        It visits every item with the lock held: 20 to 100 ms for a million items, during which writers and learners
        wait. `statistics` costs the same for every size.

        >>> import headrace as hr
        >>> table = hr.Table("t", sampler=hr.selectors.Prioritized(), remover=hr.selectors.Fifo(), max_size=9)
        >>> with hr.Replay(hr.Signature.like({"x": 0}), [table]) as replay:
        ...     with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
        ...         for x in range(4):
        ...             writer.append({"x": x})
        ...     applied = replay.update_priorities("t", [1, 2, 3, 4], [1, 1, 0, 0])
        ...     found = replay.table("t").distribution()
        >>> found.rows, found.effective_sample_size, found.oldest_age
        (4, 2.0, 3)
        """
        replay = self._replay
        with replay.lock:
            replay.check_open()
            return self._live.distribution(replay.keys.next, replay.keys.skipped)

    def peek(self, *, max_rows: int | None = None, random: np.random.Generator | None = None) -> ReplaySample:
        """Returns a random item without sampling it: nothing is counted, removed or waited for.

        Every item has the same chance, whatever the sampler. The replay's own random numbers are not used, so its
        next batches stay the same.

        Args:
            max_rows: copies at most this many of the item's first rows; None copies all.
            random: chooses the item; None takes a new generator.

        Returns:
            A batch of one item, as `Replay.sample` returns it, the table's padding included. Its `probabilities` are
            those of this choice, and its `times_sampled` are the samples so far.

        Raises:
            ItemNotFound: the table has no items.
            ValueError: max_rows < 1.
            Closed: the replay is closed.

        >>> import headrace as hr
        >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
        ...     with replay.writer(items=[hr.ItemRule("q", length=1)]) as writer:
        ...         writer.append({"x": 7})
        ...     item = replay.table("q").peek()
        ...     item["x"], item.info.times_sampled, len(replay.table("q"))
        (array([7]), array([0]), 1)
        """
        if max_rows is not None:
            max_rows = check_count("max_rows", max_rows, 1)
        generator = np.random.default_rng() if random is None else random
        return self._replay.sampling.peek(self._live, max_rows, generator)

    def configure(self, *, max_size: int | None = None, rate_limiter: RateLimiter | None = None) -> None:
        """Changes a live table: waiting calls are checked again, and a smaller `max_size` removes items at once.

        Raises:
            ValueError: the limiter could never open at this size; nothing changes.
        """
        # Rules: replay T9
        with self._replay.lock:
            self._replay.check_open()
            self._live.configure(max_size, rate_limiter)

    def __repr__(self) -> str:
        if self._replay.is_closed:
            state = "of another process" if self._replay.lifetime.is_inherited else "of a closed replay"
        else:
            state = f"of {len(self)} items"
        return f"<table {self.name!r} {state}>"
