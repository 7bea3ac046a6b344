"""Columns that a policy's loss does not read, found on the first batch."""

# Rules: views-rollouts D4

from __future__ import annotations

from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.policy_lanes import PolicyLanes


class Detection:
    """Finds, once for each policy with a `loss`, the columns that it does not read, and leaves them out from then on.

    Attributes:
        pruned: by policy id, the names that are left out.
    """

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self.pruned: dict[str, frozenset[str]] = {}

    def run(self, lanes: PolicyLanes, batch: SampleBatch) -> None:
        """Looks at the first batch of a policy, and removes the columns from it."""
