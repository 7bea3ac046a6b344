"""New weights of the policy in a worker process."""

# Rules: collectors CW3, CW4, CV2, CQ3

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.collectors.loop.times import LoopTimes
from headrace.collectors.states import check_weights, load_weights, saved_weights
from headrace.collectors.updates.models import ModelWeights, find_model, shared_ids
from headrace.collectors.updates.receivers import Receivers
from headrace.weights import WeightReceiver, apply_weights
from headrace.weights.board import NO_SLOT, BoardReader
from headrace.weights.layout import WeightLayout


class WeightReading:
    """Looks for new weights between two steps, and applies whole sets.

    Args:
        policy: the policy.
        models: its models.
        ends: receiving ends of the models that have a publishing end of their own.
        times: of the loop; a trace shows when weights were replaced.

    Attributes:
        number: of the weights that act.
    """

    def __init__(
        self,
        policy: Any,
        models: Mapping[str, ModelWeights],
        ends: Mapping[str, WeightReceiver],
        times: LoopTimes,
    ) -> None:
        self._policy = policy
        self._ids: Sequence[str] = shared_ids(models, ends)
        self._receivers = Receivers()
        for model_id, end in ends.items():
            self._receivers.add({model_id: end}, skips_present=end.version == 0)
        self._times = times
        self.number = 0
        self._reader: BoardReader | None = None
        self._sequence = self._publication = 0
        self._applied = dict.fromkeys(self._ids, 0)
        # Weights that were read for the next rollout, and their number; None: there are none.
        self._ahead: Mapping[str, Any] | None = None

    def receive(self, descriptor: int, layout: WeightLayout, address: int, addresses: int) -> None:
        """Reads from the memory that the learner has shared.

        Args:
            descriptor: of the memory, which this object then owns.
            layout: of one set.
            address, addresses: of this worker, and their number.
        """
        self._reader = BoardReader(descriptor, layout, address, addresses)

    def take_over(self) -> int:
        """Takes over new weights, if there are; returns the number of those that act.

        A set that the learner replaces while it is copied is left out: the next step looks again.
        """
        reader = self._reader
        if (reader is not None and reader.sequence != self._sequence) or self._receivers.have_news:
            begin = self._times.clock()
            self._take()
            self._times.trace("weights", begin)
        return self.number

    def take_over_for_rollout(self) -> None:
        """Takes over the weights that were read ahead, and then newer ones."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._load(ahead)
        self.take_over()

    def read_ahead(self) -> None:
        """Reads new weights for the next rollout. The present ones act until `take_over_for_rollout`."""
        if self._newer() is None and not self._receivers.have_news:
            return
        acting = self._saved()
        try:
            self.take_over_for_rollout()
        finally:
            ahead = self._saved()
            self._load(acting)
            self._ahead = ahead

    def state_dict(self) -> dict[str, Any]:
        """Returns the weights that act and those that were read ahead, with their numbers."""
        return {**self._saved(), "weights_ahead": self._ahead}

    def check_state(self, path: str, state: Mapping[str, Any]) -> None:
        """Raises if `load_state_dict` would refuse a state, which is at this path of the whole one."""
        check_weights(self._policy, state["weights"], f"{path}/weights")
        if state["weights_ahead"] is not None:
            check_weights(self._policy, state["weights_ahead"]["weights"], f"{path}/weights_ahead/weights")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on with the weights of a state."""
        # Weights that were published before belong to another state: the next step must not take them over.
        self.take_over()
        self._load(state)
        self._ahead = state["weights_ahead"]

    def _saved(self) -> dict[str, Any]:
        return {"weights": saved_weights(self._policy), "policy_version": self.number}

    def _load(self, saved: Mapping[str, Any]) -> None:
        load_weights(self._policy, saved["weights"])
        self.number = saved["policy_version"]

    def _take(self) -> None:
        numbers = []
        for received in self._receivers.take():
            apply_weights(find_model(self._policy, received.model_id), received.weights)
            numbers.append(received.version)
        reader = self._newer()
        if reader is not None:
            number = self._read(reader)
            if number is not None:
                numbers.append(number)
        if numbers:
            self.number = max(numbers)

    def _newer(self) -> BoardReader | None:
        """Returns the reader if the memory has something new. `take_over` looks itself: each step calls it."""
        reader = self._reader
        return reader if reader is not None and reader.sequence != self._sequence else None

    def _read(self, reader: BoardReader) -> int | None:
        """Applies the newest shared set; returns its number, or None if it was replaced meanwhile."""
        newest = reader.newest()
        if newest is None:
            return None
        if newest.slot != NO_SLOT and newest.publication != self._publication:
            arrays = reader.copy(newest)
            if arrays is None:
                return None
            parts = reader.shape.layout.tree(arrays)
            self._apply([int(stamp[0]) for stamp in parts[::2]], parts[1::2])
            self._publication = newest.publication
        self._sequence = newest.sequence
        return newest.number

    def _apply(self, stamps: Sequence[int], trees: Sequence[Any]) -> None:
        for stamp, model_id, tree in sorted(
            zip(stamps, self._ids, trees, strict=True), key=lambda part: part[0]
        ):
            if stamp > self._applied[model_id]:
                apply_weights(find_model(self._policy, model_id), tree)
                self._applied[model_id] = stamp
