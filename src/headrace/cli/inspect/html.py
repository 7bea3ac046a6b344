"""Parts of a report in HTML: one file, with its images in it, that fetches nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from headrace.cli.inspect import item_tables, svg
from headrace.cli.inspect.columns import ColumnSummary
from headrace.cli.inspect.item_tables import TableSummary
from headrace.cli.tables import number
from headrace.datasets.exporting.atomic import writing

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


def write(path: Path, page: str) -> None:
    """Writes a page, whole or not at all; an existing file is replaced.

    Raises:
        OSError: it cannot be written.
    """
    with writing(path, overwrite=True) as temporary:
        # A path may have bytes that are not text.
        temporary.write_text(page, encoding="utf-8", errors="backslashreplace")


def page(title: str, parts: Iterable[str]) -> str:
    """Returns a page.

    Args:
        title: text, shown above the parts.
        parts: sections; empty ones are left out.
    """
    shown = escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        # The browser keeps the page from fetching or running anything.
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{shown}</title><style>{_STYLE}</style></head>\n<body><h1>{shown}</h1>\n"
        + "\n".join(filter(None, parts))
        + "\n</body></html>\n"
    )


def section(title: str, *content: str) -> str:
    """Returns a section of HTML below a title, which is text."""
    return f"<section><h2>{escape(title)}</h2>{''.join(content)}</section>"


def table(rows: Iterable[Sequence[str]], header: Sequence[str] = (), numbers: Sequence[int] = ()) -> str:
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


def text(value: Any) -> str:
    """Returns a value as the commands print it, escaped."""
    return escape(number(value))


def facts_section(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    """Returns names and their values."""
    return section(title, table([(escape(name), text(value)) for name, value in facts]))


def findings_section(title: str, findings: Sequence[str]) -> str:
    """Returns sentences about what may be wrong."""
    if not findings:
        return section(title, '<p class="soft">Nothing was found.</p>')
    return section(title, *(f"<p>{escape(each)}</p>" for each in findings))


def columns_section(title: str, columns: Mapping[str, str], summaries: Mapping[str, ColumnSummary]) -> str:
    """Returns the arrays of a step with their ranges and histograms.

    Args:
        title: of the section.
        columns: maps the name of each array to its dtype and shape.
        summaries: of the arrays of numbers.
    """
    header = ("array", "of", "low", "mean", "high", "std", "histogram", "NaN", "infinite")
    rows = [_column(path, shape, summaries.get(path)) for path, shape in columns.items()]
    return section(title, table(rows, header, (2, 3, 4, 5, 7, 8)))


def _column(path: str, shape: str, summary: ColumnSummary | None) -> tuple[str, ...]:
    if summary is None:
        return (escape(path), escape(shape), *[""] * 7)
    numbers = (text(summary.number(name)) for name in ("low", "mean", "high", "std"))
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


def items_section(title: str, summaries: Iterable[TableSummary]) -> str:
    """Returns priorities, ages and samples of the items of tables."""
    place = item_tables.HEADER.index("histogram")
    rows = []
    for each in summaries:
        cells = [text(cell) for cell in each.row("")]
        cells[place] = _bars(each.priorities)
        rows.append(cells)
    numbers = [column for column in range(1, len(item_tables.HEADER)) if column != place]
    return section(title, table(rows, item_tables.HEADER, numbers))
