"""Columns that a policy's loss does not read, found on the first batch."""

# Rules: views-rollouts D4

from __future__ import annotations

from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.views.reading import KEPT, columns_read

_ROWS = 32


class Detection:
    """Finds, once for each policy with a `loss`, the columns that it does not read, and leaves them out from then on.

    Args:
        is_on: whether to look at all.

    Attributes:
        pruned: by policy id, the names that are left out.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self.pruned: dict[str, frozenset[str]] = {}

    def run(self, lanes: PolicyLanes, batch: SampleBatch) -> None:
        """Looks at the first batch of a policy, and removes the columns from it.

        Raises:
            Exception: as the loss raised it.
        """
        loss = getattr(lanes.policy, "loss", None)
        if not self._is_on or loss is None or lanes.policy_id in self.pruned or not batch.count:
            return
        read = columns_read(loss, batch.timeslices(_ROWS)[0]) | KEPT
        unread = [name for name in lanes.views if name in batch.data and not {name, f"{name}_mask"} & read]
        self.pruned[lanes.policy_id] = frozenset(unread)
        for name in unread:
            for column in lanes.columns_of_view(name):
                batch.data.pop(column, None)
        lanes.leave_out(unread)
