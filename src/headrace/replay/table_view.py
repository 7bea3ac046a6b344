"""A live table as users see it."""

from __future__ import annotations

from headrace.replay.replay import ReplayCore
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
