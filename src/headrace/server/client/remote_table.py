"""A live table of a replay on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.replay.sampling.replay_sample import ReplaySample
from headrace.server.client.answers.batches import batch_of
from headrace.server.messages.requests import Configure, GetDistribution, GetTableStatistics, Peek
from headrace.spec import Signature
from headrace.statistics import TableDistribution, TableStatistics
from headrace.tables.description.rate_limiters import RateLimiter
from headrace.tables.description.table import check_rate_limiter, checked_number
from headrace.tables.description.table_json import limiter_to_json

if TYPE_CHECKING:
    from headrace.server.client.calls import ReplayCalls


class RemoteTable:
    """A live table; made by `RemoteReplay.table`.

    Args:
        calls: to the replay.
        name: of the table.
        signature: of the replay.
    """

    def __init__(self, calls: ReplayCalls, name: str, signature: Signature) -> None:
        self._calls = calls
        self._name = name
        self._signature = signature

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._name

    def __len__(self) -> int:
        return self.statistics().size

    def statistics(self) -> TableStatistics:
        """Returns one frozen record."""
        request = GetTableStatistics(replay=self._calls.name, table=self._name)
        found: TableStatistics = self._calls.repeated(request).record
        return found

    def distribution(self) -> TableDistribution:
        """Returns a frozen record of the items; see `TableView.distribution`."""
        request = GetDistribution(replay=self._calls.name, table=self._name)
        found: TableDistribution = self._calls.repeated(request).record
        return found

    def peek(self, *, max_rows: int | None = None, random: np.random.Generator | None = None) -> ReplaySample:
        """Returns a random item without sampling it; see `TableView.peek`.

        Args:
            max_rows: copies at most this many of the item's first rows; None copies all.
            random: gives the seed by which the server chooses the item; None takes a new one.

        Raises:
            ItemNotFound: the table has no items.
            ValueError: max_rows < 1.
            Disconnected: the server is gone.
        """
        seed = None if random is None else int(random.integers(1 << 63))
        link = self._calls.link()
        request = Peek(replay=self._calls.name, table=self._name, max_rows=max_rows, seed=seed)
        reply = self._calls.begin(link, request)
        link.wait(reply, None)
        return batch_of(reply, self._signature, None)

    def configure(self, *, max_size: int | None = None, rate_limiter: RateLimiter | None = None) -> None:
        """Changes a live table; see `TableView.configure`.

        Raises:
            TypeError: not a rate limiter.
            ValueError: the limiter could never open at this size, or is not one of Headrace's own, which alone can be
                described to the server; nothing changes.
        """
        if rate_limiter is not None:
            check_rate_limiter(self._name, rate_limiter)
        limiter = None if rate_limiter is None else limiter_to_json(rate_limiter)
        size = None if max_size is None else checked_number(self._name, "max_size", max_size, 1)
        self._calls.once(
            Configure(replay=self._calls.name, table=self._name, max_size=size, rate_limiter=limiter)
        )

    def __repr__(self) -> str:
        return f"<table {self._name!r} of {self._calls.name!r} on {self._calls.peer}>"
