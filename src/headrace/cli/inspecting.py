"""What `headrace inspect` does."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.cli import screen
from headrace.cli.export_source import Source, open_source
from headrace.cli.inspect_picture import ContactSheet, draw
from headrace.datasets.json_values import encode
from headrace.datasets.structure import Structure
from headrace.errors import DatasetError
from headrace.trajectories.episode import Episode

# A person is shown so many episodes; --json has all of them.
_SHOWN = 20
# What Minari's metadata says of the same things in its own words.
_SHOWN_ELSEWHERE = ("observation_space", "action_space", "total_episodes", "total_steps")


@dataclass(frozen=True)
class EpisodeRow:
    """One line of the table of contents."""

    episode: int
    id: int | str | None
    seed: int | None
    length: int
    return_: float
    terminated: bool
    truncated: bool

    @property
    def end(self) -> str:
        """How it ended, in words."""
        return " ".join(name for name in ("terminated", "truncated") if getattr(self, name)) or "unfinished"


@dataclass(frozen=True)
class Contents:
    """What all episodes of a source have in common, and each of them.

    Attributes:
        columns: name of each array to its dtype and shape, of one step.
        rows: an entry for each episode.
        sheet: some of its images; None where it has none.
    """

    columns: dict[str, str]
    rows: list[EpisodeRow]
    sheet: ContactSheet | None


def run(name: str, *, as_json: bool, png: Path | None) -> None:
    """Read the source once, and print what is in it.

    Raises:
        click.BadParameter: there is nothing of that name.
        click.ClickException: the picture could not be written.
        DatasetError: it cannot be read, or holds no episode.
    """
    console = Console(quiet=as_json)
    with open_source(name) as source:
        with screen.ProgressLine(
            operator.length_hint(source.episodes), Console(stderr=True, quiet=as_json)
        ) as line:
            contents = read(source.episodes, line, with_images=png is not None)
        left_out = source.left_out
    if not contents.rows:
        raise DatasetError(f"{name}: no complete episode is in it ({left_out} left out)")
    if png is not None:
        try:
            draw(png, name, contents.rows, contents.sheet)
        except (OSError, ValueError) as error:
            raise click.ClickException(f"{png}: {error}") from error
    if as_json:
        click.echo(json.dumps(encode(_result(source, contents, left_out), "result"), allow_nan=False))
    else:
        _show(console, source, contents, left_out)


def read(episodes: Iterable[Episode], line: screen.ProgressLine, *, with_images: bool) -> Contents:
    """Go through all episodes once."""
    rows: list[EpisodeRow] = []
    columns: dict[str, str] = {}
    sheet: ContactSheet | None = None
    for index, episode in enumerate(episodes):
        if index == 0:
            structure = Structure.of(episode)
            columns = {path: str(column) for path, column in structure.columns.items()}
            sheet = ContactSheet.of(structure) if with_images else None
        rows.append(_row(index, episode))
        if sheet is not None:
            sheet.add(episode)
        line.show(index + 1, f"{index + 1} episodes")
    return Contents(columns, rows, sheet)


def _row(index: int, episode: Episode) -> EpisodeRow:
    return EpisodeRow(
        index, episode.id, episode.seed, len(episode), episode.return_, episode.terminated, episode.truncated
    )


def _spread(values: list[float]) -> dict[str, float | None]:
    array = np.array(values, np.float64)
    return {"mean": float(array.mean()), "min": float(array.min()), "max": float(array.max())}


def _summary(contents: Contents, left_out: int) -> dict[str, Any]:
    rows = contents.rows
    return {
        "episodes": len(rows),
        "steps": sum(row.length for row in rows),
        "terminated": sum(row.terminated for row in rows),
        "truncated": sum(row.truncated for row in rows),
        "unfinished": sum(row.end == "unfinished" for row in rows),
        "left_out": left_out,
    }


def _result(source: Source, contents: Contents, left_out: int) -> dict[str, Any]:
    rows = contents.rows
    return {
        "path": source.name,
        "kind": source.kind,
        **_summary(contents, left_out),
        "return": _spread([row.return_ for row in rows]),
        "length": _spread([row.length for row in rows]),
        "observation_space": _space(source.observation_space),
        "action_space": _space(source.action_space),
        "columns": contents.columns,
        "metadata": source.metadata,
        "contents": [{name.rstrip("_"): value for name, value in asdict(row).items()} for row in rows],
    }


def _space(space: Any) -> str | None:
    return None if space is None else str(space)


def _show(console: Console, source: Source, contents: Contents, left_out: int) -> None:
    rows = contents.rows
    facts = [(name.replace("_", " "), value) for name, value in _summary(contents, left_out).items()]
    facts += [
        (name, escape(str(space)))
        for name, space in (("observations", source.observation_space), ("actions", source.action_space))
        if space is not None
    ]
    facts += [
        (escape(str(name)), escape(f"{value!s:.200}"))
        for name, value in source.metadata.items()
        if name not in _SHOWN_ELSEWHERE and not str(name).startswith("headrace_")
    ]
    console.print(screen.facts(f"{escape(source.name)}: {source.kind}", facts))
    console.print(
        screen.facts("one step", [(escape(name), escape(text)) for name, text in contents.columns.items()])
    )
    console.print(
        screen.spreads(
            "episodes",
            [
                ("return", _spread([row.return_ for row in rows])),
                ("length", _spread([row.length for row in rows])),
            ],
        )
    )
    console.print(_table(rows))
    if len(rows) > _SHOWN:
        console.print(f"and {len(rows) - _SHOWN} more (--json has all)", highlight=False)


def _table(rows: list[EpisodeRow]) -> Table:
    table = Table()
    for name in ("episode", "id", "seed", "length", "return"):
        table.add_column(name, justify="right")
    table.add_column("end")
    for row in rows[:_SHOWN]:
        values = (row.episode, row.id, row.seed, row.length, row.return_)
        table.add_row(*(escape(screen.number(value)) for value in values), row.end)
    return table
