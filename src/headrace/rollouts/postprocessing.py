"""Postprocessing of the pieces of a fragment: by their policies, then by callbacks."""

# Rules: views-rollouts P4, R6, M8, C1

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headrace.batches.sample_batch import SampleBatch
from headrace.errors import SpecError
from headrace.rollouts.callbacks import Calls
from headrace.rollouts.pieces import Piece


class PieceBatch(NamedTuple):
    """A piece and its rows."""

    piece: Piece
    batch: SampleBatch


class Postprocessing:
    """Hands each piece to its policy's `postprocess_trajectory` and to `on_postprocess_trajectory`.

    Args:
        policies: by id.
        calls: the callbacks.

    Attributes:
        is_needed: whether anything takes pieces.
    """

    def __init__(self, policies: Mapping[str, Any], calls: Calls) -> None:
        self._policies, self._calls = policies, calls
        self._methods = {
            policy_id: getattr(policy, "postprocess_trajectory", None)
            for policy_id, policy in policies.items()
        }
        self.is_needed = calls.postprocess is not None or any(self._methods.values())

    def run(self, group: Sequence[PieceBatch]) -> list[PieceBatch]:
        """Postprocesses the pieces of one episode and fragment, which are those of its agents.

        Raises:
            SpecError: a policy returned another number of rows.
            TypeError: a policy returned no `SampleBatch`.
        """
        originals = {piece.key.agent_id: batch for piece, batch in group}
        if self._calls.postprocess is not None or len(group) > 1:
            # The rows before postprocessing must not show changes that it makes in place.
            originals = {agent_id: batch.copy() for agent_id, batch in originals.items()}
        return [PieceBatch(piece, self._run_one(piece, batch, originals)) for piece, batch in group]

    def _run_one(self, piece: Piece, batch: SampleBatch, originals: Mapping[Any, SampleBatch]) -> SampleBatch:
        agent_id = piece.key.agent_id
        method = self._methods[piece.policy_id]
        if method is not None:
            others = {other: rows for other, rows in originals.items() if other != agent_id}
            count = batch.count
            batch = _checked(piece, method(batch, others, piece.episode), batch, count)
        if self._calls.postprocess is not None:
            count = batch.count
            self._calls.postprocess(
                episode=piece.episode,
                agent_id=agent_id,
                policy_id=piece.policy_id,
                policies=dict(self._policies),
                postprocessed_batch=batch,
                original_batches=dict(originals),
            )
            _check_count("on_postprocess_trajectory", batch, count)
        return batch


def _checked(piece: Piece, returned: Any, given: SampleBatch, count: int) -> SampleBatch:
    name = f"policy {piece.policy_id!r}: postprocess_trajectory"
    if returned is None:
        returned = given
    if not isinstance(returned, SampleBatch):
        raise TypeError(f"{name}: expected a SampleBatch or None, got {type(returned).__name__}")
    _check_count(name, returned, count)
    return returned


def _check_count(name: str, batch: SampleBatch, count: int) -> None:
    if batch.count != count:
        raise SpecError(f"{name}: expected {count} rows, as it was given, got {batch.count}")
