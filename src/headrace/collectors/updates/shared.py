"""New weights of policies in worker processes."""

# Rules: collectors CV8, CW2, CW3, CW6, CX3

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.handle.names import name_workers
from headrace.collectors.updates.ends import PublishingEnds
from headrace.collectors.updates.held import HeldPublications
from headrace.collectors.updates.models import (
    CheckedWeights,
    ModelWeights,
    joint_layout,
    read_only,
    shared_ids,
)
from headrace.errors import Closed, SpecError
from headrace.weights import WeightScheme
from headrace.weights.board import WeightBoard


class SharedWeights:
    """Publishes weights to all workers of a machine through one shared memory. Thread-safe.

    Each model has a stamp in the memory: the publication that its weights come from. So a worker that skips sets
    applies the models that have changed, in the order of their publications.

    The workers of a synchronous batch look for weights when they begin it, one sooner than another. So what is
    published from `hold` on reaches them with `end_hold`, or with the next `hold`.

    Args:
        models: of each worker, as it describes them.
        devices: the `policy_device` of each worker.
        apart: publishing ends, which the workers read, of the models that have one of their own.
        send: called after each publication, one at a time; for workers that do not share the memory.
        published: called after that.
    """

    def __init__(
        self,
        models: Sequence[Mapping[str, ModelWeights]],
        devices: Sequence[Any],
        apart: Mapping[str, WeightScheme] = MappingProxyType({}),
        send: Callable[[WeightBoard], None] = lambda _: None,
        published: Callable[[], None] = lambda: None,
    ) -> None:
        self._send, self._published = send, published
        self.models = models[0]
        self.devices = devices
        self._differing = [worker for worker, own in enumerate(models) if not _are_alike(own, models[0])]
        self._ids = shared_ids(self.models, apart)
        self._ends = PublishingEnds(apart)
        self.layout = joint_layout(self.models, self._ids)
        self._board = WeightBoard(self.layout, addresses=len(models))
        self._publications = 0
        # The address that has the newest weights of a model.
        self._newest: dict[str, int] = {}
        self._cached: dict[str, Any] = {}
        self._is_holding, self._held = False, HeldPublications()
        self._number = 0
        self._lock = threading.Lock()

    @property
    def descriptor(self) -> int:
        """Of the memory, for the workers."""
        return self._board.descriptor

    @property
    def number(self) -> int:
        """The number from which the lag of the next batch counts.

        A synchronous one counts from the set that all of its workers were shown: what is held does not count, nor do
        sets of other publishers, of which one worker may learn later than another.
        """
        return self._number if self._is_holding else max(self._number, self._ends.newest)

    @property
    def newest_elsewhere(self) -> int:
        """See `WeightTarget.newest_elsewhere`."""
        return self._ends.newest

    @contextmanager
    def _open(self) -> Iterator[WeightBoard]:
        with self._lock:
            if self._board.is_closed:
                raise Closed("the collector is shut down")
            yield self._board

    def publish(
        self, weights: Mapping[str, CheckedWeights], number: int, workers: Sequence[int] | None
    ) -> None:
        """See `WeightTarget.publish`."""
        with self._open() as board:
            if self._is_holding:
                self._held.add(weights, number, workers)
            else:
                self._write(board, weights, number, workers)
        self._published()

    def _write(
        self,
        board: WeightBoard,
        weights: Mapping[str, CheckedWeights],
        number: int,
        workers: Sequence[int] | None,
    ) -> None:
        # Counted first: after Ctrl-C in the middle, workers may know this set, and the next one needs another stamp.
        self._publications += 1
        stamp = np.full(1, self._publications)
        arrays: list[NDArray[Any] | None] = []
        for model_id in self._ids:
            if model_id in weights:
                arrays += [stamp, *weights[model_id].arrays]
                self._newest[model_id] = 0 if workers is None else workers[0]
            else:
                layout = self.models[model_id].layout
                assert layout is not None
                arrays += [None] * (1 + len(layout.places))
        board.publish(arrays, number, workers)
        self._number = number
        for model_id in weights.keys() - set(self._ids):
            self._cached[model_id] = read_only(weights[model_id].copy())
        self._send(board)

    def hold(self) -> None:
        """Keeps back what is published from now on. What was held before reaches the workers."""
        with self._lock:
            self._show()
            self._is_holding = True

    def end_hold(self) -> None:
        """Lets what was held, and all that is published next, reach the workers."""
        if not self._is_holding:  # Each batch comes here; it does not wait for a set that is being published.
            return
        with self._lock:
            self._show()
            self._is_holding = False

    def held_state(self) -> dict[str, Any]:
        """Returns what is held, to be saved: workers that have not begun their batch must not take it over."""
        with self._lock:
            return {
                "is_holding": self._is_holding,
                "number": self.number,
                "publications": self._held.state_dict(),
            }

    def checked_held(self, state: Mapping[str, Any]) -> HeldPublications:
        """Returns the publications of a state, for `load_held`.

        Raises:
            SpecError: weights that do not fit their models.
        """
        return HeldPublications.from_state(state["publications"], self.models)

    def load_held(self, held: HeldPublications, *, is_holding: bool, number: int) -> None:
        """Goes on from a state: holds these in place of those that were held, and what is published next if it did."""
        with self._lock:
            self._held, self._is_holding, self._number = held, is_holding, number
            self._ends.skip_present()

    def _show(self) -> None:
        if self._board.is_closed:
            return
        for held in self._held.take():
            if held.weights:
                self._write(self._board, held.weights, held.number, held.workers)
            else:
                self._renumber(self._board, held.number)

    def check_workers(self, workers: Sequence[int] | None) -> None:
        """See `WeightTarget.check_workers`."""
        refused = [worker for worker in self._differing if workers is None or worker in workers]
        if refused:
            raise SpecError(
                f"update_policy_weights_: expected workers whose policies have the weights of worker 0's, but those of "
                f"{name_workers(refused)} have other names, shapes or dtypes"
            )

    def renumber(self, number: int) -> None:
        """See `WeightTarget.renumber`."""
        with self._open() as board:
            if self._is_holding:
                self._held.add({}, number, None)
            else:
                self._renumber(board, number)
        self._published()

    def _renumber(self, board: WeightBoard, number: int) -> None:
        board.renumber(number)
        self._number = number
        self._send(board)

    def show_again(self) -> None:
        """Calls `send` for the newest sets."""
        with self._open() as board:
            self._send(board)

    def cached(self, model_id: str) -> Any:
        """See `WeightTarget.cached`."""
        with self._lock:
            if (held := self._held.newest(model_id)) is not None:
                return read_only(held.copy())
            if model_id not in self._newest or self._board.is_closed:
                return self._cached.get(model_id)
            arrays = self._board.copy(self._newest[model_id])
        assert arrays is not None
        return read_only(self.layout.tree(arrays)[2 * self._ids.index(model_id) + 1])

    def close(self) -> None:
        """Releases the memory. Workers can still read the last sets."""
        with self._lock:
            self._board.close()


def _are_alike(one: Mapping[str, ModelWeights], other: Mapping[str, ModelWeights]) -> bool:
    def places(models: Mapping[str, ModelWeights]) -> dict[str, Any]:
        return {name: model.layout and model.layout.places for name, model in models.items()}

    return places(one) == places(other)
