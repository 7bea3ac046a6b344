"""The report on a server."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.cli.inspect import html
from headrace.cli.inspect.server.contents import TABLE_HEADER, Contents, ServedReplay


def page(address: str, found: Contents) -> str:
    """Returns the HTML.

    Args:
        address: of the server.
        found: the answers of the server.
    """
    parts = [html.facts_section("connections", found.facts())]
    for name, replay in found.replays.items():
        parts += _replay(name, replay)
    parts += [html.facts_section(f"queue {name}", facts) for name, facts in found.queue_facts()]
    return html.page(f"{address}: server", parts)


def _replay(name: str, replay: ServedReplay) -> Iterator[str]:
    store = replay.store
    rows = [[html.text(cell) for cell in row] for row in replay.table_rows()]
    yield html.section(
        f"replay {name}: {store.rows} rows, {store.bytes} bytes",
        html.table(rows, TABLE_HEADER, range(1, len(TABLE_HEADER))),
    )
    samples = replay.samples()
    if samples:
        yield html.findings_section(f"worth a look in {name}", replay.suspicions())
    if summaries := replay.summaries():
        yield html.items_section(f"items of {name}, with priorities of a random sample", summaries)
    for table, sample in samples:
        title = f"random items of {table}: {sample.items}, with {sample.rows} rows"
        yield html.columns_section(title, replay.columns, sample.columns)
    if not samples:
        yield html.columns_section(f"one step of {name}", replay.columns, {})
