"""New weights for actors: each set is put into the object store once, and every actor gets a reference to it."""

# Rules: collectors CY2, CW2, CW3

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.collectors.handle.handle import WorkerHandle
from headrace.collectors.messages import WeightsSent
from headrace.collectors.ray.worker import RayWorker
from headrace.weights.board import NO_SLOT, Announcement, WeightBoard
from headrace.weights.ray import import_ray

_NOTHING = Announcement(0, 0, NO_SLOT, 0)


class WeightSender:
    """Sends actors the newest sets of a board. The board's owner calls it, one call at a time.

    Args:
        handles: of all workers.
    """

    def __init__(self, handles: Sequence[WorkerHandle]) -> None:
        self._handles = handles
        # The newest announcement that was sent to each actor.
        self._sent: dict[RayWorker, Announcement] = {}
        self._put: tuple[int, Any] = 0, None

    def __call__(self, board: WeightBoard) -> None:
        """Sends each actor what the board announces for it, if that is news."""
        sent: dict[RayWorker, Announcement] = {}
        for handle in self._handles:
            place = handle.process
            assert isinstance(place, RayWorker)
            newest = board.newest(handle.worker_idx)
            before = self._sent.get(place, _NOTHING)
            if newest.sequence != before.sequence:
                self._send(handle, place, board, newest, before)
            sent[place] = newest
        self._sent = sent

    def _send(
        self,
        handle: WorkerHandle,
        place: RayWorker,
        board: WeightBoard,
        newest: Announcement,
        before: Announcement,
    ) -> None:
        has_set = newest.slot != NO_SLOT and newest.publication != before.publication
        reference = self._reference(board, newest) if has_set else None
        place.actor.take_weights.remote(reference, newest.number, newest.sequence)
        # The next rollout waits for them.
        handle.send(WeightsSent(sequence=newest.sequence))

    def _reference(self, board: WeightBoard, newest: Announcement) -> Any:
        publication, reference = self._put
        if publication != newest.publication:
            reference = import_ray().put(board.raw(newest.slot))
            self._put = newest.publication, reference
        return reference
