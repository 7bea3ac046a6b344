"""The interface to the policies that get new weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headrace.collectors.updates.models import CheckedWeights, ModelWeights


class WeightTarget(Protocol):
    """The policies of a collector: one in this process, or one in each worker."""

    @property
    def models(self) -> Mapping[str, ModelWeights]:
        """The models by their ids."""
        ...

    @property
    def devices(self) -> Sequence[Any]:
        """The `policy_device` of each worker; None: not given. One entry inline."""
        ...

    @property
    def newest_elsewhere(self) -> int:
        """The number of the newest set on the publishing ends that the policies read by themselves; 0: none."""
        ...

    def publish(
        self, weights: Mapping[str, CheckedWeights], number: int, workers: Sequence[int] | None
    ) -> None:
        """Gives these models new weights, all at once. After the call the caller may change its arrays.

        Args:
            weights: by model.
            number: of the set.
            workers: indices of those that get it; None: all.
        """
        ...

    def check_workers(self, workers: Sequence[int] | None) -> None:
        """Raises if the policies of these workers have other weights than `models` says.

        Raises:
            SpecError: with the workers.
        """
        ...

    def renumber(self, number: int) -> None:
        """Gives the present weights another number, from the next step on."""
        ...

    def cached(self, model_id: str) -> Any:
        """Returns the newest published weights of a model as read-only arrays; None before the first."""
        ...
