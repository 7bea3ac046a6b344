"""A report on a source of episodes: one HTML file, with its images in it, that fetches nothing."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from headrace.cli.inspect import item_tables, svg
from headrace.cli.inspect.columns import ColumnSummary
from headrace.cli.inspect.contact_sheet import ContactSheet
from headrace.cli.inspect.contents import Contents, EpisodeRow
from headrace.cli.tables import number
from headrace.datasets.exporting.atomic import writing
from headrace.monitor.pictures import Image
from headrace.monitor.png import encode_png

# Of more episodes, some at even intervals are listed and drawn.
MOST_LISTED, MOST_DRAWN = 200, 2000
# Larger images are thinned out.
_MOST_PIXELS = 160
_ENDS = ("terminated", "truncated", "terminated truncated", "unfinished")

_STYLE = """
:root { --ground: #f4f6f8; --card: #fff; --ink: #17202c; --soft: #5f6b7a; --line: #e1e6ec;
  --p0: #1f6feb; --p1: #c2620a; --p2: #8e44ad; --p3: #5f6b7a; }
@media (prefers-color-scheme: dark) { :root { --ground: #0e1217; --card: #161b22; --ink: #e4e9f0; --soft: #8d98a8;
  --line: #262e39; --p0: #6aa7ff; --p1: #f0a94a; --p2: #c792ea; --p3: #8d98a8; } }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 14px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
h1 { font-size: 1.2rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin: 0 0 .5rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .9rem 1rem;
  margin: 0 0 1rem; overflow-x: auto; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; }
td, th { padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
td.number, th.number { text-align: right; }
.soft { color: var(--soft); } .plots { display: flex; flex-wrap: wrap; gap: 1rem; }
figure { margin: 0; } img { margin: 0 .3rem .3rem 0; min-width: 84px; image-rendering: pixelated; }
svg.bars { width: 160px; height: 28px; display: block; } svg.bars path { fill: var(--p0); }
svg.plot { width: 520px; max-width: 100%; } svg text { fill: var(--soft); font-size: 11px; }
.axes { fill: none; stroke: var(--line); } .dots { stroke-width: 4; stroke-linecap: round; }
.end0 { stroke: var(--p0); color: var(--p0); } .end1 { stroke: var(--p1); color: var(--p1); }
.end2 { stroke: var(--p2); color: var(--p2); } .end3 { stroke: var(--p3); color: var(--p3); }
"""


@dataclass(frozen=True)
class Report:
    """All that a report shows.

    Attributes:
        title: the name of the source and its kind.
        facts: names and values.
        spreads: mean, least and largest return and length.
        contents: the arrays and episodes.
    """

    title: str
    facts: Sequence[tuple[str, Any]]
    spreads: dict[str, dict[str, float | None]]
    contents: Contents

    def write(self, path: Path) -> None:
        """Writes the page, whole or not at all; an existing file is replaced.

        Raises:
            OSError: it cannot be written.
        """
        with writing(path, overwrite=True) as temporary:
            # A path may have bytes that are not text.
            temporary.write_text(self.page(), encoding="utf-8", errors="backslashreplace")

    def page(self) -> str:
        """Returns the HTML."""
        parts = [_facts_section(self.facts), _suspicious(self.contents), _spreads_section(self.spreads)]
        parts += [_returns(self.contents.rows), _columns(self.contents), _items(self.contents)]
        parts += [_images(self.contents.sheet), _episodes(self.contents.rows)]
        title = escape(self.title)
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            # The browser keeps the page from fetching or running anything.
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
            '<meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
            + "\n".join(filter(None, parts))
            + "\n</body></html>\n"
        )


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def _table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), numbers: Sequence[int] = ()) -> str:
    """Returns a table of cells that are HTML already.

    Args:
        rows: of the table.
        header: names of the columns.
        numbers: columns that are aligned right.
    """
    kinds = ((header, "th"),) if header else ()
    lines = [*kinds, *((row, "td") for row in rows)]
    return f"<table>{''.join(_line(cells, tag, numbers) for cells, tag in lines)}</table>"


def _line(cells: Sequence[str], tag: str, numbers: Sequence[int]) -> str:
    marks = (' class="number"' if place in numbers else "" for place in range(len(cells)))
    shown = (f"<{tag}{mark}>{cell}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _text(value: Any) -> str:
    return escape(number(value))


def _facts_section(facts: Sequence[tuple[str, Any]]) -> str:
    return _section("contents", _table([(escape(name), _text(value)) for name, value in facts]))


def _suspicious(contents: Contents) -> str:
    if not contents.summaries:
        return ""
    if not contents.suspicious:
        return _section("worth a look", '<p class="soft">Nothing was found.</p>')
    return _section("worth a look", *(f"<p>{escape(each)}</p>" for each in contents.suspicious))


def _spreads_section(spreads: dict[str, dict[str, float | None]]) -> str:
    names = ("mean", "min", "max")
    rows = [(escape(row), *(_text(spread[name]) for name in names)) for row, spread in spreads.items()]
    return _section("returns and lengths", _table(rows, ("", *names), (1, 2, 3)))


def _returns(rows: Sequence[EpisodeRow]) -> str:
    some, step = _some(rows, MOST_DRAWN)
    colours = {end: f"end{place}" for place, end in enumerate(_ENDS)}
    legend = " ".join(
        f'<span class="{colour}">&#9679; {end}</span>'
        for end, colour in colours.items()
        if any(row.end == end for row in some)
    )
    plots = []
    for name in ("return_", "length"):
        points: dict[str, list[tuple[float, float]]] = {colour: [] for colour in colours.values()}
        for row in some:
            value = getattr(row, name)
            # A return may be NaN.
            if abs(value) < float("inf"):
                points[colours[row.end]].append((row.episode, value))
        if any(points.values()):
            plots.append(
                f"<figure>{svg.scatter(points)}<figcaption>{name.rstrip('_')} by episode</figcaption></figure>"
            )
    return _section(
        "episodes", f"<p>{legend}{_thinned(step)}</p>", f'<div class="plots">{"".join(plots)}</div>'
    )


def _some(rows: Sequence[EpisodeRow], most: int) -> tuple[Sequence[EpisodeRow], int]:
    """Returns at most so many rows at even intervals, and the interval."""
    step = -(-len(rows) // most)
    return rows[:: max(step, 1)], step


def _thinned(step: int) -> str:
    return "" if step <= 1 else f' <span class="soft">one episode of {step} is shown</span>'


def _columns(contents: Contents) -> str:
    if not contents.columns:
        return ""
    header = ("array", "of", "low", "mean", "high", "std", "histogram", "NaN", "infinite")
    rows = [_column(path, shape, contents.summaries.get(path)) for path, shape in contents.columns.items()]
    return _section("one step", _table(rows, header, (2, 3, 4, 5, 7, 8)))


def _column(path: str, shape: str, summary: ColumnSummary | None) -> tuple[str, ...]:
    if summary is None:
        return (escape(path), escape(shape), *[""] * 7)
    numbers = (_text(summary.number(name)) for name in ("low", "mean", "high", "std"))
    found = summary.statistics
    return (
        escape(path),
        escape(shape),
        *numbers,
        _bars(summary),
        str(found.rows_with_nan or ""),
        str(found.rows_with_infinity or ""),
    )


def _bars(summary: ColumnSummary) -> str:
    return "" if summary.histogram is None else svg.bars(summary.histogram.counts)


def _items(contents: Contents) -> str:
    if not contents.tables:
        return ""
    place = item_tables.HEADER.index("histogram")
    rows = []
    for table in contents.tables.values():
        cells = [_text(cell) for cell in table.row("")]
        cells[place] = _bars(table.priorities)
        rows.append(cells)
    numbers = [column for column in range(1, len(item_tables.HEADER)) if column != place]
    return _section("items", _table(rows, item_tables.HEADER, numbers))


def _images(sheet: ContactSheet | None) -> str:
    if sheet is None:
        return ""
    rows = ("".join(map(_image, images)) for images in sheet.rows)
    return _section(f"{sheet.path} of the first episodes", *(f"<div>{row}</div>" for row in rows))


def _image(image: Image) -> str:
    step = -(-max(image.shape[:2]) // _MOST_PIXELS)
    data = base64.b64encode(encode_png(image[::step, ::step])).decode()
    return f'<img alt="" src="data:image/png;base64,{data}">'


def _episodes(rows: Sequence[EpisodeRow]) -> str:
    some, step = _some(rows, MOST_LISTED)
    names = ("episode", "id", "seed", "length", "return_", "end")
    cells = [[_text(getattr(row, name)) for name in names] for row in some]
    table = _table(cells, [name.rstrip("_") for name in names], (0, 3, 4))
    return _section("list of episodes", f"<p>{_thinned(step)}</p>" if step > 1 else "", table)
