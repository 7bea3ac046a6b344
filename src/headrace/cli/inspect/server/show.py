"""Shows the replays and queues of a server, with random items of each table: `headrace inspect ADDRESS`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli import tables
from headrace.cli.inspect import column_table, html, item_tables
from headrace.cli.inspect.output_file import naming, tell
from headrace.cli.inspect.server.contents import TABLE_HEADER, Contents, ServedReplay, ask
from headrace.cli.inspect.server.item_sample import ItemSample
from headrace.cli.inspect.server.report import page
from headrace.cli.server_address import connect
from headrace.cli.tls_files import TlsFiles
from headrace.monitor.record import to_json


def show_server(address: str, tls_files: TlsFiles, *, as_json: bool, report: Path | None) -> None:
    """Asks a server once, and prints its contents. Nothing is changed or counted as a sample.

    Args:
        address: of the server.
        tls_files: certificates of both sides.
        as_json: prints one JSON object.
        report: a file for the same as HTML; None writes none.

    Raises:
        click.BadParameter: not an address.
        click.ClickException: the server asks for another token, or the report could not be written.
        Disconnected, DeadlineExceeded: the server does not answer.
    """
    with connect(address, tls_files) as client:
        found = ask(client)
    if report is not None:
        with naming(report):
            html.write(report, page(address, found))
    if as_json:
        click.echo(to_json({"address": address, **found.as_json()}).decode())
    else:
        _show(address, found)
        tell(report)


def _show(address: str, found: Contents) -> None:
    tables.show(f"{address}: server", found.facts())
    for name, replay in found.replays.items():
        _show_replay(name, replay)
    for name, facts in found.queue_facts():
        tables.show(f"queue {name}", facts)


def _show_replay(name: str, replay: ServedReplay) -> None:
    store = replay.store
    tables.show(f"replay {name}: {store.rows} rows, {store.bytes} bytes", list(replay.columns.items()))
    tables.show(f"tables of {name}", replay.table_rows(), TABLE_HEADER)
    if summaries := replay.summaries():
        cells = [each.row(column_table.bars(each.priorities)) for each in summaries]
        tables.show(f"items of {name}, with priorities of a random sample", cells, item_tables.HEADER)
    for table, sample in replay.samples():
        _show_sample(table, sample, replay.columns)
    if suspicious := replay.suspicions():
        tables.show(f"worth a look in {name}", [("-", sentence) for sentence in suspicious])


def _show_sample(table: str, sample: ItemSample, columns: dict[str, str]) -> None:
    tables.show(
        f"random items of {table}: {sample.items}, with {sample.rows} rows",
        column_table.rows(columns, sample.columns),
        column_table.HEADER,
    )
