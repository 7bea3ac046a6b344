"""Shows the replays and queues of a server, with a random item of each table: `headrace inspect ADDRESS`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from headrace.cli import tables
from headrace.cli.server_address import connect
from headrace.errors import ItemNotFound
from headrace.monitor.record import to_json
from headrace.server.client.client import Client
from headrace.server.client.remote_replay import RemoteReplay
from headrace.server.client.remote_table import RemoteTable
from headrace.server.statistics import ConnectionCounts
from headrace.statistics import ReplayStatistics

# Rows of an item that are read; their numbers are summarized.
_MOST_ROWS = 256
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
_ITEM_HEADER = ("column", "array", "min", "mean", "max")


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
        found = {"address": address, "server": server, "replays": replays, "queues": queues}
        click.echo(to_json(found).decode())
        return
    tables.show(f"{address}: server", [(name.replace("_", " "), value) for name, value in server.items()])
    for name, replay in replays.items():
        _show_replay(name, replay)
    for name, queue in queues.items():
        tables.show(f"queue {name}", [(key.replace("_", " "), value) for key, value in queue.items()])


# ---- asking --------------------------------------------------------------------------------------------------------


def _replay(client: Client, name: str, record: ReplayStatistics) -> dict[str, Any]:
    replay = client.replay(name)
    return {
        "columns": {path: str(spec) for path, spec in replay.signature.columns.items()},
        "store": asdict(record.store),
        "tables": {
            table: {**asdict(each), "item": _item(replay, replay.table(table))}
            for table, each in record.tables.items()
        },
    }


def _item(replay: RemoteReplay, table: RemoteTable) -> dict[str, Any] | None:
    """Returns a random item, with a summary of each column; None if the table has none."""
    try:
        item = table.peek(max_rows=_MOST_ROWS)
    except ItemNotFound:
        return None
    columns = replay.signature.flatten(item.data)
    return {
        "key": int(item.info.keys[0]),
        "priority": float(item.info.priorities[0]),
        "times_sampled": int(item.info.times_sampled[0]),
        "rows": item.layout.length or 1,
        "columns": {path: _summary(values[0]) for path, values in columns.items()},
    }


def _summary(values: NDArray[Any]) -> dict[str, Any]:
    summary: dict[str, Any] = {"array": f"{values.dtype}{list(values.shape)}"}
    if values.size and values.dtype.kind != "c":
        numbers = values.astype(np.float64)
        summary.update(min=float(numbers.min()), mean=float(numbers.mean()), max=float(numbers.max()))
    return summary


# ---- showing -------------------------------------------------------------------------------------------------------


def _show_replay(name: str, replay: dict[str, Any]) -> None:
    store = replay["store"]
    tables.show(
        f"replay {name}: {store['rows']} rows, {store['bytes']} bytes", list(replay["columns"].items())
    )
    rows = [[table[field] for field in _TABLE_FIELDS] for table in replay["tables"].values()]
    tables.show(f"tables of {name}", rows, _TABLE_HEADER)
    for table, record in replay["tables"].items():
        if (item := record["item"]) is not None:
            tables.show(
                f"a random item of {table}: {item['rows']} rows, priority {tables.number(item['priority'])}, sampled "
                f"{item['times_sampled']} times",
                [
                    (path, *(each.get(key) for key in _ITEM_HEADER[1:]))
                    for path, each in item["columns"].items()
                ],
                _ITEM_HEADER,
            )
