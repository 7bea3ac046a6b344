"""Replays and queues of a server, as `headrace inspect ADDRESS` asks for them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from headrace.cli.inspect.item_tables import TableSummary
from headrace.cli.inspect.server.item_sample import ItemSample, sample_items
from headrace.monitor.ages import MAX_ITEMS
from headrace.server.client.client import Client
from headrace.server.client.remote_replay import RemoteReplay
from headrace.server.queue_info import BatchQueueInfo
from headrace.server.statistics import ConnectionCounts
from headrace.statistics import ReplayStatistics, StoreStatistics, TableStatistics

_TABLE_FIELDS = (
    "name", "size", "max_size", "inserts", "samples", "deletes", "pending_inserts", "waiting_samples",
)  # fmt: skip
TABLE_HEADER = (
    "table", "items", "of", "inserts", "samples", "deletes", "pending inserts", "waiting samples",
)  # fmt: skip


@dataclass(frozen=True)
class ServedTable:
    """A table of a server.

    Attributes:
        record: its counters.
        sample: some of its items; None if it has none.
        summary: ages and weights of all its items; None if it has none, or too many to be read.
    """

    record: TableStatistics
    sample: ItemSample | None
    summary: TableSummary | None

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        return {
            **asdict(self.record),
            "sample": None if self.sample is None else self.sample.as_json(),
            "items": None if self.summary is None else asdict(self.summary.distribution),
            "suspicious": self.suspicions(),
        }

    def suspicions(self) -> list[str]:
        """Returns sentences about its items that may be wrong."""
        weights = [] if self.summary is None else self.summary.suspicions()
        sampled = [] if self.sample is None else self.sample.suspicions()
        return [*weights, *(f"sample of {self.record.name}: {sentence}" for sentence in sampled)]


@dataclass(frozen=True)
class ServedReplay:
    """A replay of a server.

    Attributes:
        columns: maps the name of each array of a step to its dtype and shape.
        store: counters of its rows.
        tables: by name.
    """

    columns: dict[str, str]
    store: StoreStatistics
    tables: dict[str, ServedTable]

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        tables_json = {name: table.as_json() for name, table in self.tables.items()}
        return {"columns": self.columns, "store": asdict(self.store), "tables": tables_json}

    def table_rows(self) -> list[list[Any]]:
        """Returns one row for each table, below `TABLE_HEADER`."""
        return [[getattr(table.record, field) for field in _TABLE_FIELDS] for table in self.tables.values()]

    def summaries(self) -> list[TableSummary]:
        """Returns the summaries of the tables that have one."""
        return [table.summary for table in self.tables.values() if table.summary is not None]

    def samples(self) -> list[tuple[str, ItemSample]]:
        """Returns names and items of the tables that have items."""
        return [(name, table.sample) for name, table in self.tables.items() if table.sample is not None]

    def suspicions(self) -> list[str]:
        """Returns sentences about all tables."""
        return [sentence for table in self.tables.values() for sentence in table.suspicions()]


@dataclass(frozen=True)
class Contents:
    """The answers of a server.

    Attributes:
        server: numbers of its connections.
        replays: by name.
        queues: maps the name of each queue to its counters.
    """

    server: dict[str, Any]
    replays: dict[str, ServedReplay]
    queues: dict[str, dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Returns all numbers; None for those that are not known."""
        replays = {name: replay.as_json() for name, replay in self.replays.items()}
        return {"server": self.server, "replays": replays, "queues": self.queues}

    def facts(self) -> list[tuple[str, Any]]:
        """Returns names and numbers of its connections."""
        return _named(self.server)

    def queue_facts(self) -> list[tuple[str, list[tuple[str, Any]]]]:
        """Returns the name of each queue with names and numbers of its counters."""
        return [(name, _named(counters)) for name, counters in self.queues.items()]


def ask(client: Client) -> Contents:
    """Asks a server for its counters, and for random items and ages of its replays. Nothing is counted as a sample."""
    record = client.statistics()
    replays = {
        name: _ask_replay(client, name, each)
        for name, each in record.served.items()
        if isinstance(each, ReplayStatistics)
    }
    queues = {
        name: msgspec.structs.asdict(each)
        for name, each in record.served.items()
        if isinstance(each, BatchQueueInfo)
    }
    server = {name: getattr(record, name) for name in ConnectionCounts.__dataclass_fields__}
    return Contents(server, replays, queues)


def _ask_replay(client: Client, name: str, record: ReplayStatistics) -> ServedReplay:
    replay = client.replay(name)
    columns = {path: str(spec) for path, spec in replay.signature.columns.items()}
    found = {
        table: _ask_table(replay, table, each, record.store.row_bytes)
        for table, each in record.tables.items()
    }
    return ServedReplay(columns, record.store, found)


def _ask_table(replay: RemoteReplay, name: str, record: TableStatistics, row_bytes: int) -> ServedTable:
    sample = sample_items(replay, name, row_bytes)
    if sample is None or record.size > MAX_ITEMS:
        return ServedTable(record, sample, None)
    distribution = replay.table(name).distribution()
    summary = TableSummary(distribution, record.total_weight is not None, sample.priorities)
    return ServedTable(record, sample, summary)


def _named(counters: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name.replace("_", " "), value) for name, value in counters.items()]
