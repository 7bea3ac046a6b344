"""The records of what a server serves, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from headrace.server.queue_info import BatchQueueInfo
from headrace.statistics import FrozenDict, ReplayStatistics


class ServedRecords(FrozenDict[ReplayStatistics | BatchQueueInfo]):
    """Maps the names of replays and queues to their records. A closed replay has no record; the error says so.

    Args:
        records: by name.
        closed: names of the replays that are closed.

    >>> ServedRecords({}, ["r"])["r"]
    Traceback (most recent call last):
        ...
    KeyError: "the server has no statistics of 'r': this replay is closed; there are none"
    """

    __slots__ = ("_closed",)

    def __init__(
        self,
        records: Mapping[str, ReplayStatistics | BatchQueueInfo] | Iterable[Any] = (),
        closed: Iterable[str] = (),
    ) -> None:
        super().__init__(records)
        self._closed = frozenset(closed)

    def __missing__(self, name: str) -> NoReturn:
        others = f"those of {', '.join(map(repr, self))}" if self else "none"
        reason = (
            f": this replay is closed; there are {others}"
            if name in self._closed
            else f"; there are {others}"
        )
        raise KeyError(f"the server has no statistics of {name!r}{reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self._closed)
