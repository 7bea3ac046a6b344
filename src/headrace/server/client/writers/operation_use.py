"""Upper bounds of the steps, final rows and items that a writer's operation adds at the server."""

from __future__ import annotations

from typing import NamedTuple


class Use(NamedTuple):
    """Upper bounds for one operation.

    Attributes:
        steps: vector steps.
        finals: final rows beside the lanes.
        items: items that it makes.
    """

    steps: int = 0
    finals: int = 0
    items: int = 0


NO_USE = Use()
