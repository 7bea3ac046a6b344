"""Images of a dataset's episodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.exporting.structure import Column, Structure
from headrace.trajectories.episode import Episode

Image = NDArray[np.uint8]

NUM_IMAGES = 8
"""Images in a row of the sheet."""
_EPISODES = 4
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
        steps = np.unique(np.linspace(0, len(images) - 1, NUM_IMAGES).round().astype(int))
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
