"""The report on a source of episodes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from headrace.cli.inspect import html, svg
from headrace.cli.inspect.contact_sheet import ContactSheet
from headrace.cli.inspect.contents import Contents, EpisodeRow
from headrace.monitor.pictures import Image
from headrace.monitor.png import encode_png

# Of more episodes, some at even intervals are listed and drawn.
MOST_LISTED, MOST_DRAWN = 200, 2000
# Larger images are thinned out.
_MOST_PIXELS = 160
_ENDS = ("terminated", "truncated", "terminated truncated", "unfinished")


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

    def page(self) -> str:
        """Returns the HTML."""
        found = self.contents
        return html.page(
            self.title,
            [
                html.facts_section("contents", self.facts),
                html.findings_section("worth a look", found.suspicious) if found.summaries else "",
                _spreads_section(self.spreads),
                _returns(found.rows),
                html.columns_section("one step", found.columns, found.summaries) if found.columns else "",
                html.items_section("items", found.tables.values()) if found.tables else "",
                _images(found.sheet),
                _episodes(found.rows),
            ],
        )


def _spreads_section(spreads: dict[str, dict[str, float | None]]) -> str:
    names = ("mean", "min", "max")
    rows = [(escape(row), *(html.text(spread[name]) for name in names)) for row, spread in spreads.items()]
    return html.section("returns and lengths", html.table(rows, ("", *names), (1, 2, 3)))


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
    return html.section(
        "episodes", f"<p>{legend}{_thinned(step)}</p>", f'<div class="plots">{"".join(plots)}</div>'
    )


def _some(rows: Sequence[EpisodeRow], most: int) -> tuple[Sequence[EpisodeRow], int]:
    """Returns at most so many rows at even intervals, and the interval."""
    step = -(-len(rows) // most)
    return rows[:: max(step, 1)], step


def _thinned(step: int) -> str:
    return "" if step <= 1 else f' <span class="soft">one episode of {step} is shown</span>'


def _images(sheet: ContactSheet | None) -> str:
    if sheet is None:
        return ""
    rows = ("".join(map(_image, images)) for images in sheet.rows)
    return html.section(f"{sheet.path} of the first episodes", *(f"<div>{row}</div>" for row in rows))


def _image(image: Image) -> str:
    step = -(-max(image.shape[:2]) // _MOST_PIXELS)
    data = base64.b64encode(encode_png(image[::step, ::step])).decode()
    return f'<img alt="" src="data:image/png;base64,{data}">'


def _episodes(rows: Sequence[EpisodeRow]) -> str:
    some, step = _some(rows, MOST_LISTED)
    names = ("episode", "id", "seed", "length", "return_", "end")
    cells = [[html.text(getattr(row, name)) for name in names] for row in some]
    table = html.table(cells, [name.rstrip("_") for name in names], (0, 3, 4))
    return html.section("list of episodes", f"<p>{_thinned(step)}</p>" if step > 1 else "", table)
