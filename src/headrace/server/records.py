"""The record of a server, out of its parts on the wire."""

from __future__ import annotations

from headrace.server.messages.answers import ServerRecord
from headrace.server.served_records import ServedRecords
from headrace.server.statistics import ConnectionCounts, ServerStatistics


def statistics_of(record: ServerRecord) -> ServerStatistics:
    """Returns the statistics of a record."""
    counts = {name: getattr(record.counts, name) for name in ConnectionCounts.__dataclass_fields__}
    served = ServedRecords({**record.replays, **record.queues}, record.closed)
    return ServerStatistics(**counts, served=served)
