"""The table on the terminal and the lines in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from bench.measure import Row, Spread, short
from headrace.cli import tables

_VERDICTS = {True: "reached", False: "missed", None: ""}
_COLUMNS = ("case", "ours (min to max)", "unit", "limit (min to max)", "ours / limit", "goal", "", "at pace")


class Report:
    """Collects rows and shows them.

    Args:
        header: machine and versions.
        path: of a file for JSON lines, the header first; None writes none.
    """

    def __init__(self, header: dict[str, Any], path: str | None) -> None:
        self._header = header
        self._path = None if path is None else Path(path)
        self._rows: list[Row | dict[str, Any]] = []
        self._write({"header": header}, "w")

    def add(self, row: Row | dict[str, Any]) -> None:
        self._rows.append(row)
        self._write(row.as_dict() if isinstance(row, Row) else row, "a")

    def _write(self, line: dict[str, Any], mode: str) -> None:
        if self._path is not None:
            with self._path.open(mode) as file:
                file.write(json.dumps(line, default=str) + "\n")

    def show(self) -> None:
        click.echo(", ".join(f"{name} {value}" for name, value in self._header.items() if value))
        own = [row for row in self._rows if isinstance(row, Row)]
        if own:
            tables.show("cases", [_contest(row) for row in own], header=_COLUMNS)
        for row in self._rows:
            if isinstance(row, Row):
                _show_details(row)
            else:
                click.echo("  ".join(f"{name} {_plain(value)}" for name, value in row.items()))


def _contest(row: Row) -> tuple[str, ...]:
    return (
        row.case,
        _spread(row.value),
        row.unit,
        "" if row.limit is None else _spread(row.limit),
        "" if row.ratio is None else f"{row.ratio:.2f}",
        "" if row.goal is None else str(row.goal),
        _VERDICTS[row.is_reached],
        "" if row.pace is None else f"{row.pace.median:.2f} {_VERDICTS[row.is_reached_at_pace]}",
    )


def _show_details(row: Row) -> None:
    """The limit's name, warm-up, peers and notes: what would make the table too wide."""
    details = [f"limit: {row.limit_name}"] if row.limit_name else []
    details += [f"{name} {seconds:.2g} s" for name, seconds in row.warm_up.items()]
    details += [f"{name} {_spread(spread)}" for name, spread in row.peers.items()]
    details += row.notes
    if details:
        click.echo(f"{row.case}: {'; '.join(details)}")


def _spread(spread: Spread) -> str:
    if spread.low == spread.high:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.low)} to {short(spread.high)})"


def _plain(value: Any) -> Any:
    return short(value) if isinstance(value, float) else value
