"""Reads a source of episodes, and prints or draws its contents."""

from __future__ import annotations

import json
import operator
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headrace.cli import run_record, tables
from headrace.cli.episode_source import Source, open_source
from headrace.cli.episodes import spreads
from headrace.cli.inspect import column_table, item_tables
from headrace.cli.inspect import html as html_parts
from headrace.cli.inspect.contents import Contents, EpisodeRow
from headrace.cli.inspect.output_file import naming, tell
from headrace.cli.inspect.picture import draw
from headrace.cli.inspect.reading import ContentsReader
from headrace.cli.inspect.report import Report
from headrace.cli.inspect.training_folder import is_training, read_training
from headrace.cli.progress import ProgressLine
from headrace.cli.tally import Tally
from headrace.datasets.exporting.json_values import encode
from headrace.errors import DatasetError

# Episodes that are printed, at most; --json has all.
_SHOWN = 20
# Metadata of Minari that repeats what is shown anyway.
_SHOWN_ELSEWHERE = ("observation_space", "action_space", "total_episodes", "total_steps", "env_spec")


def run(name: str, reading: dict[str, Any], *, as_json: bool, png: Path | None, html: Path | None) -> None:
    """Reads the source once, and prints its contents.

    Args:
        name: of the source.
        reading: arguments of `open_source`.
        as_json: prints one JSON object.
        png: a file for a picture; None draws none.
        html: a file for a report; None writes none.

    Raises:
        click.BadParameter: no source has this name.
        click.ClickException: the picture or the report could not be written.
        DatasetError: the source cannot be read, or has no episode.
    """
    # Only datasets are read with arguments: `open_source` refuses them for other folders.
    if is_training(Path(name)) and not reading:
        source, contents = read_training(name)
    else:
        source, contents = _read_source(
            name, reading, as_json=as_json, with_images=png is not None or html is not None
        )
    record = run_record.read(Path(name))
    if png is not None:
        with naming(png):
            draw(png, name, contents.rows, contents.sheet)
    if html is not None:
        with naming(html):
            html_parts.write(html, _report(source, contents, record).page())
    if as_json:
        click.echo(
            json.dumps(encode({**_result(source, contents), "run": record}, "result"), allow_nan=False)
        )
    else:
        _show(source, contents, record)
        tell(png, html)


def _report(source: Source, contents: Contents, record: dict[str, Any] | None) -> Report:
    rows = contents.rows
    return Report(
        f"{source.name}: {source.kind}",
        [*_facts(source, rows), *run_record.rows(record)],
        _spreads(rows),
        contents,
    )


def _read_source(
    name: str, reading: dict[str, Any], *, as_json: bool, with_images: bool
) -> tuple[Source, Contents]:
    with open_source(name, **reading) as source:
        reader = ContentsReader(source, with_images=with_images)
        with ProgressLine(operator.length_hint(source.episodes), "episodes", quiet=as_json) as line:
            for done, episode in enumerate(source.episodes, 1):
                reader.add(episode)
                line.show(done)
        contents = reader.contents()
    if not contents.rows:
        raise DatasetError(f"{name}: no complete episode is in it ({source.left_out} left out)")
    return source, contents


def _ended(rows: list[EpisodeRow]) -> list[EpisodeRow]:
    return [row for row in rows if row.terminated or row.truncated]


def _spreads(rows: list[EpisodeRow]) -> dict[str, dict[str, float | None]]:
    """Summarizes the episodes that ended, as `headrace collect` does; all episodes where none ended."""
    return spreads(_ended(rows) or rows)


def _summary(source: Source, rows: list[EpisodeRow]) -> dict[str, int]:
    tally = Tally()
    for row in rows:
        tally.count(row.length, row.terminated, row.truncated)
    return {**asdict(tally), "left_out": source.left_out}


def _result(source: Source, contents: Contents) -> dict[str, Any]:
    rows = contents.rows
    return {
        "path": source.name,
        "kind": source.kind,
        **_summary(source, rows),
        **_spreads(rows),
        "observation_space": _space(source.observation_space),
        "action_space": _space(source.action_space),
        "tables": source.tables,
        "items": {name: table.as_json() for name, table in contents.tables.items()},
        "columns": contents.columns,
        "statistics": {path: each.as_json() for path, each in contents.summaries.items()},
        "suspicious": contents.suspicious,
        "metadata": {**source.metadata, **source.sizes},
        "contents": [{name.rstrip("_"): value for name, value in asdict(row).items()} for row in rows],
    }


def _space(space: Any) -> str | None:
    return None if space is None else _line(space)


def _line(space: Any) -> str:
    # NumPy pads the numbers of an array to one width.
    return " ".join(str(space).split())


def _show(source: Source, contents: Contents, record: dict[str, Any] | None) -> None:
    rows = contents.rows
    tables.show(f"{source.name}: {source.kind}", [*_facts(source, rows), *run_record.rows(record)])
    if contents.columns:
        tables.show("one step", column_table.rows(contents.columns, contents.summaries), column_table.HEADER)
    if contents.tables:
        tables.show(
            "items",
            [table.row(column_table.bars(table.priorities)) for table in contents.tables.values()],
            item_tables.HEADER,
        )
    if contents.suspicious:
        tables.show("worth a look", [("-", sentence) for sentence in contents.suspicious])
    tables.show_spreads(
        "episodes that ended" if _ended(rows) else "episodes, of which none ended", _spreads(rows)
    )
    names = ("episode", "id", "seed", "length", "return_", "end")
    shown = [[getattr(row, name) for name in names] for row in rows[:_SHOWN]]
    tables.show("episodes", shown, header=[name.rstrip("_") for name in names])
    if len(rows) > _SHOWN:
        click.echo(f"and {len(rows) - _SHOWN} more (--json has all)")


def _facts(source: Source, rows: list[EpisodeRow]) -> list[tuple[str, Any]]:
    spaces = (("observations", source.observation_space), ("actions", source.action_space))
    metadata = {
        name: value
        for name, value in (*source.metadata.items(), *source.sizes.items())
        if name not in _SHOWN_ELSEWHERE and not str(name).startswith("headrace_")
    }
    return [
        *((name.replace("_", " "), value) for name, value in _summary(source, rows).items()),
        *((name, _line(space)) for name, space in spaces if space is not None),
        *((f"table {name}", f"{items} items") for name, items in (source.tables or {}).items()),
        *((str(name), textwrap.shorten(tables.number(value), 200)) for name, value in metadata.items()),
    ]
