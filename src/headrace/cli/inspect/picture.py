"""A picture of a dataset: returns and lengths of episodes and, for images, the contact sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headrace.cli.figures import new_figure, use_whole_numbers
from headrace.cli.inspect.contact_sheet import NUM_IMAGES, ContactSheet
from headrace.cli.inspect.contents import EpisodeRow


def draw(path: Path, title: str, rows: Sequence[EpisodeRow], sheet: ContactSheet | None) -> None:
    """Draws returns and lengths by episode, and the contact sheet below them.

    Args:
        path: the file; its suffix selects the format.
        title: the text above the picture.
        rows: all episodes.
        sheet: the images; None draws none.

    Raises:
        ImportError: matplotlib is missing.
    """
    heights = [4.0] if sheet is None else [4.0, 1.3 * len(sheet.rows)]
    figure = new_figure(10, sum(heights), "--png")
    places: Any = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)
    _draw_returns(places[0, 0], title, rows)
    if sheet is not None:
        _draw_sheet(places[1, 0], sheet)
    figure.savefig(path)


def _draw_returns(figure: Any, title: str, rows: Sequence[EpisodeRow]) -> None:
    numbers = [row.episode for row in rows]
    figure.suptitle(title, parse_math=False)
    left, right = figure.subplots(1, 2)
    for end in ("terminated", "truncated", "terminated truncated", "unfinished"):
        ended = [row for row in rows if row.end == end]
        if ended:
            left.plot([row.episode for row in ended], [row.return_ for row in ended], ".", label=end)
    left.set(xlabel="episode", ylabel="return")
    left.legend(loc="best")
    right.plot(numbers, [row.length for row in rows], ".", color="gray")
    right.set(xlabel="episode", ylabel="steps")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    use_whole_numbers(left.xaxis, right.xaxis, right.yaxis)


def _draw_sheet(figure: Any, sheet: ContactSheet) -> None:
    figure.suptitle(sheet.path, parse_math=False)
    grid = figure.subplots(len(sheet.rows), NUM_IMAGES, squeeze=False)
    for place, axes in np.ndenumerate(grid):
        axes.set_axis_off()
        row, column = place
        if column < len(sheet.rows[row]):
            axes.imshow(sheet.rows[row][column], cmap="gray", vmin=0, vmax=255)
