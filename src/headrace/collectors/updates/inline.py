"""New weights of a policy in this process."""

# Rules: collectors CW3, CW4, CW6

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.collectors.loop.times import LoopTimes
from headrace.collectors.updates.models import CheckedWeights, ModelWeights, find_model, models_of, read_only
from headrace.weights import apply_weights


class InlineWeights:
    """Replaces the weights of the policy that acts in this process, never during a step.

    Args:
        policy: the policy.
        model_ids: of the models that can be replaced.
        times: of the loop; a trace shows when weights were replaced.
        device: the `policy_device`; None: not given.

    Attributes:
        number: of the weights that act.
    """

    def __init__(
        self, policy: Any, model_ids: Iterable[str], times: LoopTimes, device: str | None = None
    ) -> None:
        self.devices: Sequence[Any] = (device,)
        self._policy = policy
        self._times = times
        self._model_ids = tuple(model_ids)
        for model_id in self._model_ids:
            find_model(policy, model_id)
        self._models: dict[str, ModelWeights] | None = None
        self.number = 0
        self._cached: dict[str, Any] = {}
        # Number of `collecting` blocks: of the thread that collects, and of one that saves the weights meanwhile.
        self._holders = 0
        self._pending: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def models(self) -> Mapping[str, ModelWeights]:
        """See `WeightTarget.models`."""
        if self._models is None:
            self._models = models_of(self._policy, self._model_ids)
        return self._models

    @property
    def newest_elsewhere(self) -> int:
        """See `WeightTarget.newest_elsewhere`: the policy of this process reads no end."""
        return 0

    def publish(
        self,
        weights: Mapping[str, CheckedWeights],
        number: int,
        workers: Sequence[int] | None = None,  # noqa: ARG002 - there is only worker 0
    ) -> None:
        """See `WeightTarget.publish`. During a rollout the weights act from its next step on."""
        copies = {model_id: new.copy() for model_id, new in weights.items()}
        with self._lock:
            self._cached.update({model_id: read_only(copy) for model_id, copy in copies.items()})
            if self._holders:
                own = {model_id: new.copy() for model_id, new in weights.items()}
                self._pending.append(lambda: self._apply(own, number))
            else:
                self._apply({model_id: new.tree for model_id, new in weights.items()}, number)

    def check_workers(self, workers: Sequence[int] | None) -> None:
        """See `WeightTarget.check_workers`: there is one policy."""

    def _apply(self, trees: Mapping[str, Any], number: int) -> None:
        begin = self._times.clock()
        for model_id, tree in trees.items():
            apply_weights(find_model(self._policy, model_id), tree)
        self._times.trace("weights", begin)
        self.number = number

    def renumber(self, number: int) -> None:
        """See `WeightTarget.renumber`."""
        with self._lock:
            if self._holders:
                self._pending.append(lambda: self._apply({}, number))
            else:
                self.number = number

    def cached(self, model_id: str) -> Any:
        """See `WeightTarget.cached`."""
        return self._cached.get(model_id)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keeps new weights back for the time of a `with` block, except at `take_over`."""
        with self._lock:
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._take_pending()

    def take_over(self) -> int:
        """Takes over new weights between two steps; returns the number of those that act."""
        if self._pending:
            with self._lock:
                self._take_pending()
        return self.number

    def _take_pending(self) -> None:
        pending, self._pending = self._pending, []
        for apply in pending:
            apply()
