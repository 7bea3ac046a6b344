"""Draws the pictures of docs/windows.md: `python docs/pictures/windows.py`.

Rows are boxes, a window is a line of boxes under the rows it takes; hatched boxes are invented rows, crossed ones rows
that end in no window. Draws the windows that `hr.trajectories.windows` returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ImportError as error:
    raise ImportError('the pictures need matplotlib: pip install "headrace[plot]"') from error

import headrace as hr
from headrace.trajectories import windows

ROWS, LENGTH, STRIDE = 7, 4, 2
# A second episode follows, for the one end whose windows go on into it.
ROWS_AFTER = 5

REAL, OTHER, INVENTED, DROPPED = "#9ecae1", "#a1d99b", "#ffffff", "#f2f2f2"
INK = "#333333"


def main() -> None:
    """Writes one SVG for each member of `hr.EndOfEpisode` beside this file."""
    # Text stays text, and nothing depends on the day or the run: a picture changes when its windows do.
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9})
    for end in hr.EndOfEpisode:
        path = Path(__file__).parent / f"windows_{end.value}.svg"
        picture(end).savefig(path, metadata={"Date": None, "Creator": None})


def picture(end: hr.EndOfEpisode) -> Figure:
    """The rows of an episode (two for CONTINUE), and below them the windows."""
    stream = ROWS + ROWS_AFTER if end is hr.EndOfEpisode.CONTINUE else ROWS
    found = windows(stream, LENGTH, STRIDE, end)
    width = max(stream, *(start + rows + padding for start, rows, padding in found))
    figure = Figure(figsize=(0.36 * (width + 0.6), 0.3 * (len(found) + 1.5)))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.3, width + 0.3), ylim=(-len(found) - 0.3, 1.2))
    axes.axis("off")
    covered = {row for start, rows, _ in found for row in range(start, start + rows)}
    for row in range(stream):
        _box(axes, row, 0.15, _name(row), _color(row) if row in covered else DROPPED)
        if row not in covered:
            axes.plot([row, row + 1], [0.15, 0.95], color=INK, linewidth=0.8)
    for line, (start, rows, padding) in enumerate(found, 1):
        for row in range(start, start + rows):
            _box(axes, row, -line, _name(row), _color(row))
        for row in range(start + rows, start + rows + padding):
            _box(axes, row, -line, "", INVENTED, hatch="////")
    return figure


def _name(row: int) -> str:
    if row < ROWS - 1:
        return str(row)
    return f"F{row}" if row == ROWS - 1 else str(100 + row - ROWS)


def _color(row: int) -> str:
    return REAL if row < ROWS else OTHER


def _box(axes: Any, x: float, y: float, text: str, color: str, **style: Any) -> None:
    axes.add_patch(Rectangle((x, y), 1, 0.8, facecolor=color, edgecolor=INK, linewidth=0.8, **style))
    axes.text(x + 0.5, y + 0.38, text, ha="center", va="center", color=INK)


if __name__ == "__main__":
    main()
