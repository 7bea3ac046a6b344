"""The table of a prioritized buffer, its updates and its importance weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.public import Replay
from headrace.tables.description.table import Table

if TYPE_CHECKING:
    from headrace.replay.sampling.replay_sample import SampleInfo


class Priorities:
    """The settings of a prioritized table, whose new items get the largest priority so far.

    Args:
        exponent: an item is drawn in proportion to its priority to the power of this number; None draws each as likely.
        importance_exponent: of the importance weights; 1 corrects for the priorities fully.

    Source: T. Schaul et al., "Prioritized Experience Replay" (2016).
    """

    def __init__(self, exponent: float | None, importance_exponent: float) -> None:
        self.exponent = exponent
        self.importance_exponent = importance_exponent

    def table(self, max_size: int) -> Table:
        """Returns a table of this size."""
        if self.exponent is None:
            return Table.uniform(max_size)
        return Table.prioritized(max_size, self.exponent, new_priority="largest")

    def update(self, replay: Replay, table: str, keys: Any, priorities: Any) -> None:
        """Sets the priorities of items; those that were removed since are ignored.

        Args:
            replay: with the table.
            table: its name.
            keys: integers `[B]`, an array or a tensor.
            priorities: `[B]` or `[B, 1]`, an array or a tensor.

        Raises:
            ValueError: the table has no priorities; or one is negative or not finite. Nothing changes.
        """
        if self.exponent is None:
            raise ValueError("priorities: expected a buffer with a priority_exponent, got one without")
        values = _numpy(priorities).astype(np.float64).reshape(-1)
        replay.update_priorities(table, _numpy(keys).reshape(-1), values)

    def weights(self, info: SampleInfo) -> NDArray[np.float32]:
        """float32[B]: the importance weights of a sample, of which the largest is 1."""
        weights = (info.table_size * info.probabilities) ** -self.importance_exponent
        scaled: NDArray[np.float32] = (weights / weights.max()).astype(np.float32)
        return scaled


def _numpy(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
