"""Tables of figures for bench/README.md, from the JSON lines of one or more runs.

    python -m bench.page FIRST.json [OTHER.json ...]

A table for each topic: the figures of the first run, and beside them the ratio, or the value where there is none, of
each other run that has the case.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.measure import short

_HEAD = "| case | ours (min to max) | limit | ours / limit | others | goal | |\n|---|---|---|---|---|---|---|"
_VERDICTS = {True: "reached", False: "missed", None: ""}


def _rows(path: str) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return {line["case"]: line for line in lines if "value" in line}


def _number(row: dict[str, Any]) -> str:
    ratio = row["ratio"]
    return short(row["value"]["median"]) if ratio is None else f"{ratio:.2f}"


def table_row(row: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Returns one line of a table.

    >>> spread = {"median": 2000.0, "low": 1000.0, "high": 3000.0}
    >>> limit = {"name": "plain ring", "median": 4000.0, "low": 4000.0, "high": 4000.0}
    >>> goal = {"goal": ">= 0.40 of limit", "reached": True}
    >>> table_row({"case": "append/one", "unit": "steps/s", "value": spread, "limit": limit, "ratio": 0.5} | goal, [])
    '| append/one | 2 k (1 k to 3 k) steps/s | plain ring 4 k | 0.50 |  | >= 0.40 of limit | reached |'
    """
    value, limit = row["value"], row["limit"]
    ours = f"{short(value['median'])} ({short(value['low'])} to {short(value['high'])}) {row['unit']}"
    cells = (
        row["case"],
        ours.strip(),
        "" if limit is None else f"{limit['name']} {short(limit['median'])}",
        "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        ", ".join(_number(other) for other in others),
        row["goal"] or "",
        _VERDICTS[row["reached"]],
    )
    return f"| {' | '.join(cells)} |"


def tables(first: str, *others: str) -> str:
    """Returns the tables of these files, one for each topic."""
    further = [_rows(path) for path in others]
    topics: dict[str, list[str]] = defaultdict(list)
    for case, row in _rows(first).items():
        found = [rows[case] for rows in further if case in rows]
        topics[case.partition("/")[0]].append(table_row(row, found))
    return "\n\n".join("\n".join((f"**{topic}**\n", _HEAD, *lines)) for topic, lines in topics.items())


if __name__ == "__main__":
    print(tables(*sys.argv[1:]))
