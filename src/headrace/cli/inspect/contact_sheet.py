"""Images of a dataset's episodes."""

from __future__ import annotations

import numpy as np

from headrace.datasets.exporting.structure import Column, Structure
from headrace.monitor import pictures
from headrace.trajectories.episode import Episode

NUM_IMAGES = 8
"""Images in a row of the sheet."""
_EPISODES = 4


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
        self.rows: list[list[pictures.Image]] = []
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
        self.rows.append([pictures.as_picture(images[step]) for step in steps])


def is_image(column: Column) -> bool:
    """Returns True for observations that are images; see `pictures.is_image`."""
    return column.part == "observations" and pictures.is_image(column.shape, column.dtype)
