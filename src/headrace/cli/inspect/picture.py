"""A picture of a dataset: returns and lengths of episodes and, for images, a contact sheet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.cli.figures import new_figure, use_whole_numbers
from headrace.cli.inspect.contents import EpisodeRow
from headrace.datasets.exporting.structure import Column, Structure
from headrace.trajectories.episode import Episode

Image = NDArray[np.uint8]

# Of the contact sheet: rows, and images in a row.
_EPISODES, _IMAGES = 4, 8
# Pixels of the shorter side of an array that counts as an image, at least.
_LEAST_SIDE = 8
# Of gray images, colour images, and stacks of four frames.
_CHANNELS = (1, 3, 4)


class ContactSheet:
    """Images of the first four episodes, eight of each at even intervals.

    Args:
        structure: the structure of the episodes.
        path: the name of the array that has the images.

    Attributes:
        path: as given.
        rows: one list of images per episode, each `uint8[H, W]` or `uint8[H, W, 3]`.
    """

    def __init__(self, structure: Structure, path: str) -> None:
        self.path = path
        self.rows: list[list[Image]] = []
        self._structure = structure

    @classmethod
    def of(cls, structure: Structure) -> ContactSheet | None:
        """Returns an empty sheet for the first observation that is an image; None if none is."""
        for path, column in structure.columns.items():
            if is_image(column):
                return cls(structure, path)
        return None

    def add(self, episode: Episode) -> None:
        """Adds the images of an episode, unless the sheet is full."""
        if len(self.rows) == _EPISODES:
            return
        images = self._structure.flatten(episode)[self.path]
        steps = np.unique(np.linspace(0, len(images) - 1, _IMAGES).round().astype(int))
        self.rows.append([as_picture(images[step]) for step in steps])


def is_image(column: Column) -> bool:
    """Returns True for observations of uint8 with two axes, or with three of which the first or last has channels."""
    if column.part != "observations" or column.dtype != np.uint8 or len(column.shape) not in (2, 3):
        return False
    sides = column.shape
    if len(sides) == 3:
        if sides[-1] not in _CHANNELS and sides[0] not in _CHANNELS:
            return False
        sides = sides[:2] if sides[-1] in _CHANNELS else sides[1:]
    return min(sides) >= _LEAST_SIDE


def as_picture(image: Image) -> Image:
    """Returns an image as gray `[H, W]` or colour `[H, W, 3]`; from a stack of frames, the newest."""
    if image.ndim == 2:
        return image
    if image.shape[-1] not in _CHANNELS:
        image = np.moveaxis(image, 0, -1)
    return image if image.shape[-1] == 3 else image[..., -1]


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
    grid = figure.subplots(len(sheet.rows), _IMAGES, squeeze=False)
    for place, axes in np.ndenumerate(grid):
        axes.set_axis_off()
        row, column = place
        if column < len(sheet.rows[row]):
            axes.imshow(sheet.rows[row][column], cmap="gray", vmin=0, vmax=255)
