"""Draws the pictures of docs/views.md: `python docs/pictures/views.py`.

Time goes to the right: a column of boxes is what one row shows. Blue boxes are observations, green ones actions,
hatched ones fills. Draws the arrays and the masks that `hr.views.apply` returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

import numpy as np

import headrace as hr

STEPS = 6
CUT = 3
OBSERVATION, ACTION, FILL = "#9ecae1", "#a1d99b", "#ffffff"
INK = "#333333"
# Where the boxes begin: the names of the views stand before them.
MARGIN = 5.8
GAP = 0.5

SHIFTS = {
    'View("observation", shift=1)': hr.View("observation", shift=1, mask=True),
    'View("action", shift=-1)': hr.View("action", shift=-1, mask=True),
    'View("observation",\nshift="-2:0", fill="edge")': hr.View(
        "observation", shift="-2:0", fill="edge", mask=True
    ),
    'View("observation", shift="0:2")': hr.View("observation", shift="0:2", mask=True),
}
CUTS = {
    'View("observation",\nshift="-2:0", fill="edge")': SHIFTS[
        'View("observation",\nshift="-2:0", fill="edge")'
    ],
    'View("observation", shift=2)': hr.View("observation", shift=2, mask=True),
}


def main() -> None:
    """Writes the two pictures beside this file."""
    # Text stays text, and nothing depends on the day or the run: a picture changes when its views do.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})
    whole = episode()
    save("views_shifts", picture(SHIFTS, [whole.fragment(0, STEPS)]))
    save("views_fragments", picture(CUTS, [whole.fragment(0, CUT), whole.fragment(CUT, STEPS)]))


def save(name: str, figure: Figure) -> None:
    """Writes an SVG."""
    figure.savefig(Path(__file__).parent / f"{name}.svg", metadata={"Date": None, "Creator": None})


def episode() -> hr.Episode:
    """Observations 0 to 6 and actions 0 to 5."""
    flags = np.zeros(STEPS, bool)
    ends = np.arange(STEPS) == STEPS - 1
    return hr.Episode(np.arange(STEPS + 1), np.arange(STEPS), np.ones(STEPS, np.float32), ends, flags)


def picture(views: Mapping[str, hr.View], fragments: list[Any]) -> Figure:
    """The columns of the episode, and below them the views of each fragment, side by side."""
    width = MARGIN + STEPS + 1 + GAP * (len(fragments) - 1)
    height = 2.6 + sum(len(view.offsets) + 0.5 for view in views.values())
    figure = Figure(figsize=(0.42 * width, 0.3 * height))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width + 0.2), ylim=(-height, 0.2))
    axes.axis("off")
    starts = np.cumsum([0, *map(len, fragments[:-1])])
    places = [MARGIN + t + GAP * int(np.count_nonzero(starts[1:] <= t)) for t in range(STEPS + 1)]
    _source(axes, -0.9, "observation", OBSERVATION, places)
    _source(axes, -1.8, "action", ACTION, places[:STEPS])
    for start, fragment in zip(starts, fragments, strict=True):
        _views(axes, views, hr.views.apply(views, fragment), places[start])
    return figure


def _source(axes: Any, y: float, name: str, color: str, places: list[float]) -> None:
    axes.text(MARGIN - 0.2, y + 0.38, name, ha="right", va="center", color=INK)
    for index, x in enumerate(places):
        _box(axes, x, y, f"{name[0]}{index}", color)


def _views(axes: Any, views: Mapping[str, hr.View], shown: Mapping[str, Any], left: float) -> None:
    y = -2.6
    for name, view in views.items():
        values, known = (np.atleast_2d(shown[part].T) for part in (name, f"{name}_mask"))
        if left == MARGIN:
            axes.text(MARGIN - 0.2, y - len(values) / 2, name, ha="right", va="center", color=INK)
        for line, row in enumerate(values):
            for t, value in enumerate(row):
                _value(axes, left + t, y - line - 0.9, view, value, is_known=known[line, t])
        y -= len(values) + 0.5


def _value(axes: Any, x: float, y: float, view: hr.View, value: Any, *, is_known: bool) -> None:
    source = view.data_col or ""
    if is_known:
        _box(axes, x, y, f"{source[0]}{value}", OBSERVATION if source == "observation" else ACTION)
    else:
        text = f"{source[0]}{value}" if view.fill == "edge" else "0"
        _box(axes, x, y, text, FILL, hatch="////")


def _box(axes: Any, x: float, y: float, text: str, color: str, **style: Any) -> None:
    axes.add_patch(Rectangle((x, y), 1, 0.8, facecolor=color, edgecolor=INK, linewidth=0.8, **style))
    around = {"facecolor": color, "edgecolor": "none", "pad": 0.8}
    axes.text(x + 0.5, y + 0.38, text, ha="center", va="center", color=INK, bbox=around)


if __name__ == "__main__":
    main()
