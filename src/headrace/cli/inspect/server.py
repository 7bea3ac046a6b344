"""Shows the replays and queues of a server, with random items of each table: `headrace inspect ADDRESS`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from headrace.cli import tables
from headrace.cli.inspect import column_table, item_tables
from headrace.cli.inspect.item_sample import ItemSample, sample_items
from headrace.cli.inspect.item_tables import TableSummary
from headrace.cli.server_address import connect
from headrace.monitor.ages import MAX_ITEMS
from headrace.monitor.record import to_json
from headrace.server.client.client import Client
from headrace.server.client.remote_replay import RemoteReplay
from headrace.server.statistics import ConnectionCounts
from headrace.statistics import ReplayStatistics, StoreStatistics, TableStatistics

_TABLE_HEADER = (
    "table",
    "items",
    "of",
    "inserts",
    "samples",
    "deletes",
    "pending inserts",
    "waiting samples",
)
_TABLE_FIELDS = (
    "name",
    "size",
    "max_size",
    "inserts",
    "samples",
    "deletes",
    "pending_inserts",
    "waiting_samples",
)


def show_server(address: str, authorities: Path | None, *, as_json: bool) -> None:
    """Asks a server once, and prints its contents. Nothing is changed or counted as a sample.

    Raises:
        click.BadParameter: not an address.
        click.ClickException: the server asks for another token.
        Disconnected, DeadlineExceeded: the server does not answer.
    """
    with connect(address, authorities) as client:
        record = client.statistics()
        replays = {
            name: _replay(client, name, each)
            for name, each in record.served.items()
            if isinstance(each, ReplayStatistics)
        }
    queues = {name: asdict(each) for name, each in record.served.items() if name not in replays}
    server = {name: getattr(record, name) for name in ConnectionCounts.__dataclass_fields__}
    if as_json:
        contents = {name: replay.as_json() for name, replay in replays.items()}
        found = {"address": address, "server": server, "replays": contents, "queues": queues}
        click.echo(to_json(found).decode())
        return
    tables.show(f"{address}: server", [(name.replace("_", " "), value) for name, value in server.items()])
    for name, replay in replays.items():
        _show_replay(name, replay)
    for name, queue in queues.items():
        tables.show(f"queue {name}", [(key.replace("_", " "), value) for key, value in queue.items()])


# ---- asking --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
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
class _Replay:
    """A replay of a server."""

    columns: dict[str, str]
    store: StoreStatistics
    tables: dict[str, _Table]

    def as_json(self) -> dict[str, Any]:
        tables_json = {name: table.as_json() for name, table in self.tables.items()}
        return {"columns": self.columns, "store": asdict(self.store), "tables": tables_json}


def _replay(client: Client, name: str, record: ReplayStatistics) -> _Replay:
    replay = client.replay(name)
    columns = {path: str(spec) for path, spec in replay.signature.columns.items()}
    found = {
        table: _table(replay, table, each, record.store.row_bytes) for table, each in record.tables.items()
    }
    return _Replay(columns, record.store, found)


def _table(replay: RemoteReplay, name: str, record: TableStatistics, row_bytes: int) -> _Table:
    sample = sample_items(replay, name, row_bytes)
    if sample is None or record.size > MAX_ITEMS:
        return _Table(record, sample, None)
    distribution = replay.table(name).distribution()
    summary = TableSummary(distribution, record.total_weight is not None, sample.priorities)
    return _Table(record, sample, summary)


# ---- showing -------------------------------------------------------------------------------------------------------


def _show_replay(name: str, replay: _Replay) -> None:
    store, found = replay.store, replay.tables
    tables.show(f"replay {name}: {store.rows} rows, {store.bytes} bytes", list(replay.columns.items()))
    rows = [[getattr(table.record, field) for field in _TABLE_FIELDS] for table in found.values()]
    tables.show(f"tables of {name}", rows, _TABLE_HEADER)
    if summaries := [table.summary for table in found.values() if table.summary is not None]:
        cells = [each.row(column_table.bars(each.priorities)) for each in summaries]
        tables.show(f"items of {name}, with priorities of a random sample", cells, item_tables.HEADER)
    for table, each in found.items():
        if each.sample is not None:
            _show_sample(table, each.sample, replay.columns)
    suspicious = [sentence for table in found.values() for sentence in table.suspicions()]
    if suspicious:
        tables.show(f"worth a look in {name}", [("-", sentence) for sentence in suspicious])


def _show_sample(table: str, sample: ItemSample, columns: dict[str, str]) -> None:
    tables.show(
        f"random items of {table}: {sample.items}, with {sample.rows} rows",
        column_table.rows(columns, sample.columns),
        column_table.HEADER,
    )
