"""Explanations of batches: the stored rows from which an element was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Shown:
    """Source of the values that one view, or column, shows in an element.

    Attributes:
        columns: the columns that were read.
        rows: int64, with the axes of the view for one element: the rows that were read, -1 for the fill. An n-step sum
            has an axis for its steps instead, -1 after the last one.
        t: int64, as `rows`: the step index of each row in its episode, -1 for the fill.
    """

    columns: tuple[str, ...]
    rows: NDArray[np.int64]
    t: NDArray[np.int64]

    def __str__(self) -> str:
        return f"{', '.join(self.columns)} of t {self.t.tolist()}, row {self.rows.tolist()}"


@dataclass(frozen=True, eq=False)
class Explanation:
    """Where one element of a batch comes from; printing it shows a line for each view.

    Attributes:
        lane: environment in the writer's or collector's vector; -1: unknown.
        episode_id: int64[...], for each row of the element.
        t: int64[...], step index in the episode, for each row of the element.
        views: by name.
        key: of the item; None outside replays.

    >>> shown = Shown(("observation",), np.array([6, 7]), np.array([2, 3]))
    >>> print(Explanation(0, np.array(5), np.array(3), {"stack": shown}))
    lane 0, episode 5, t 3
      stack: observation of t [2, 3], row [6, 7]
    """

    lane: int
    episode_id: NDArray[np.int64]
    t: NDArray[np.int64]
    views: Mapping[str, Shown]
    key: int | None = None

    def __str__(self) -> str:
        item = "" if self.key is None else f"item {self.key}, "
        lane = "unknown" if self.lane < 0 else self.lane
        head = f"{item}lane {lane}, episode {_plain(self.episode_id)}, t {_plain(self.t)}"
        return "\n".join([head, *(f"  {name}: {shown}" for name, shown in self.views.items())])


def _plain(numbers: NDArray[Any]) -> Any:
    """Returns one number where all are the same, else a list."""
    found = np.unique(numbers)
    return found[0] if len(found) == 1 else numbers.tolist()
