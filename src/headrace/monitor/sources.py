"""Where the statistics of the page come from: replays and queues of this process, or a server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.errors import Closed, HeadraceError
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.statistics import ConnectionCounts, ServerStatistics
from headrace.statistics import ReplayStatistics

Record = ReplayStatistics | BatchQueueInfo
_NO_ANSWER = (HeadraceError, OSError, RuntimeError)


@dataclass(frozen=True)
class Reading:
    """Statistics of one instant.

    Attributes:
        records: of each replay and queue that answered, by name.
        problems: the error of each that did not answer, by name.
        server: the counters of the server; None without a server, or if it did not answer.
    """

    records: Mapping[str, Record]
    problems: Mapping[str, str]
    server: ConnectionCounts | None = None


class Source(Protocol):
    """Gives statistics."""

    def read(self) -> Reading:
        """Returns the statistics of now; errors of replays and queues are in it."""


class HasStatistics(Protocol):
    """The part of a replay or of a queue that is recorded."""

    def statistics(self) -> Record:
        """Returns one frozen record."""


class HasServerStatistics(Protocol):
    """The part of a server or of a client that is recorded."""

    def statistics(self) -> ServerStatistics:
        """Returns one frozen record."""


class EachOne:
    """Asks replays and queues one by one.

    Args:
        objects: by name.

    >>> import headrace as hr
    >>> with hr.Replay(hr.Signature.like({"x": 0}), [hr.Table.queue("q", 9)]) as replay:
    ...     source = EachOne({"replay": replay})
    ...     source.read().records["replay"].tables["q"].size
    0
    >>> source.read().problems
    {'replay': 'closed'}
    """

    def __init__(self, objects: Mapping[str, HasStatistics]) -> None:
        self._objects = dict(objects)

    def read(self) -> Reading:
        """See `Source.read`."""
        records: dict[str, Record] = {}
        problems: dict[str, str] = {}
        for name, each in self._objects.items():
            try:
                records[name] = each.statistics()
            except _NO_ANSWER as error:
                problems[name] = _problem(error)
        return Reading(records, problems)


class WholeServer:
    """Asks a server, or the client of one, for everything at once.

    Args:
        server: the server or the client.
        names: of its replays and queues.
    """

    def __init__(self, server: HasServerStatistics, names: Iterable[str]) -> None:
        self._server, self._names = server, tuple(names)

    def read(self) -> Reading:
        """See `Source.read`. A closed replay is missing in the record of a server."""
        try:
            record = self._server.statistics()
        except _NO_ANSWER as error:
            return Reading({}, dict.fromkeys(self._names, _problem(error)))
        missing = [name for name in self._names if name not in record.served]
        return Reading(record.served, dict.fromkeys(missing, "closed"), record)


def _problem(error: Exception) -> str:
    return "closed" if isinstance(error, Closed) else f"{type(error).__name__}: {error}"
