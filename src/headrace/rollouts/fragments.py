"""The pieces of the fragment that is being collected, and the batches that are made of them."""

# Rules: views-rollouts R5, R6, R8

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from typing import Any

from headrace.batches.sample_batch import SampleBatch
from headrace.rollouts.detection import Detection
from headrace.rollouts.episode import RolloutEpisode
from headrace.rollouts.lanes.others import Others
from headrace.rollouts.lanes.policy_lanes import PolicyLanes
from headrace.rollouts.pieces import NO_PEERS, AgentRun, Piece, SampleKey
from headrace.rollouts.postprocessing import PieceBatch, Postprocessing


class Fragments:
    """Collects the pieces of a fragment, and makes a batch of each policy's pieces when it is cut.

    Pieces are presented together at the cut, or at the end of each episode where postprocessing takes them.

    Args:
        policies: lanes by policy id.
        postprocessing: of the pieces.
        detection: finds the columns that losses do not read.
        others: finds the other agents beside a piece; None: there is one agent.
    """

    def __init__(
        self,
        policies: Mapping[str, PolicyLanes],
        postprocessing: Postprocessing,
        detection: Detection,
        others: Others | None = None,
    ) -> None:
        self._policies, self._postprocessing, self._detection = policies, postprocessing, detection
        self._others = others
        self._episodes = 0
        self._pieces = 0
        self._closed: list[Piece] = []
        self._ready: list[PieceBatch] = []

    def new_episode(self) -> RolloutEpisode:
        """Returns an episode with an id of its own."""
        self._episodes += 1
        return RolloutEpisode(self._episodes - 1)

    def open(
        self,
        episode: RolloutEpisode,
        policy_id: str,
        lane: int,
        *,
        env_index: int,
        agent_id: Any,
        place: int = 0,
        agent_index: int = 0,
        peers: Mapping[Any, AgentRun] = NO_PEERS,
    ) -> Piece:
        """Begins a piece at the newest row of a lane, the first row of a trajectory."""
        first = self._policies[policy_id].rows.place(lane)
        key = SampleKey(env_index, episode.episode_id, agent_id)
        piece = Piece(
            key, place, agent_index, policy_id, episode, lane, first, first, 0, self._new_fragment_id(), peers
        )
        self._policies[policy_id].opened(piece)
        return piece

    def close(self, piece: Piece, *, is_end: bool, last_is_known: bool = True) -> None:
        """Ends a piece at the newest row of its lane, and perhaps its trajectory."""
        self._stop(piece)
        piece.last_is_known = last_is_known
        self._policies[piece.policy_id].closed(piece, is_end=is_end)
        self._keep(piece)

    def after(self, piece: Piece) -> Piece:
        """Returns the piece that continues a closed one in the next fragment."""
        return self._next(piece, piece.key, piece.t + piece.stop - piece.first, piece.episode)

    def into_next_episode(self, piece: Piece, episode: RolloutEpisode) -> Piece:
        """Ends a piece with its episode, and begins the next one where the environment was not reset."""
        self._stop(piece)
        later = self._next(piece, piece.key._replace(episode_id=episode.episode_id), 0, episode)
        self._policies[piece.policy_id].continued(piece, later)
        self._keep(piece)
        return later

    def _stop(self, piece: Piece) -> None:
        """Ends the rows of a piece at the newest row of its lane."""
        piece.stop = self._policies[piece.policy_id].rows.place(piece.lane)

    def _keep(self, piece: Piece) -> None:
        """Keeps a closed piece for the batch, if it has rows, or an error that the batch is to raise."""
        if piece.stop > piece.first or piece.error is not None:
            self._closed.append(piece)

    def _next(self, piece: Piece, key: SampleKey, t: int, episode: RolloutEpisode) -> Piece:
        return Piece(
            key, piece.place, piece.agent_index, piece.policy_id, episode, piece.lane,
            piece.begin, piece.stop, t, self._new_fragment_id(), piece.peers,
        )  # fmt: skip

    def end_episode(self, episode: RolloutEpisode) -> None:
        """Postprocesses the pieces of an episode that has ended, if anything takes them; an error drops them all."""
        if self._postprocessing.is_needed:
            self._ready += self._postprocessed(self._without(episode))

    def drop_episode(self, episode: RolloutEpisode) -> None:
        """Drops the pieces of an episode since the last cut."""
        self._without(episode)

    def take(self) -> dict[str, SampleBatch]:
        """Returns the rows of each policy, of those pieces that are closed; an error drops them all."""
        closed, self._closed = self._closed, []
        if self._postprocessing.is_needed:
            ready, self._ready = self._ready, []
            return self._detected(_joined(ready + self._postprocessed(closed), self._policies))
        return self._detected(
            {policy_id: self._shown(policy_id, pieces) for policy_id, pieces in _by_policy(closed)}
        )

    def _shown(self, policy_id: str, pieces: list[Piece]) -> SampleBatch:
        lanes = self._policies[policy_id]
        return lanes.for_training(lanes.present(pieces, self._others)[0])

    def _without(self, episode: RolloutEpisode) -> list[Piece]:
        """Takes the closed pieces of an episode out, and returns them."""
        found = [piece for piece in self._closed if piece.episode is episode]
        if found:
            self._closed = [piece for piece in self._closed if piece.episode is not episode]
        return found

    def _postprocessed(self, closed: list[Piece]) -> list[PieceBatch]:
        presented: list[PieceBatch] = []
        for policy_id, pieces in _by_policy(closed):
            batch, bounds = self._policies[policy_id].present(pieces, self._others)
            presented += [
                PieceBatch(piece, batch[begin:end])
                for piece, (begin, end) in zip(pieces, pairwise(bounds), strict=True)
                if begin < end
            ]
        presented.sort(key=lambda each: each.piece.order[:3])
        groups = groupby(presented, key=lambda each: each.piece.order[:2])
        return [each for _, group in groups for each in self._postprocessing.run(list(group))]

    def _detected(self, batches: dict[str, SampleBatch]) -> dict[str, SampleBatch]:
        for policy_id, batch in batches.items():
            self._detection.run(self._policies[policy_id], batch)
        return batches

    def _new_fragment_id(self) -> int:
        self._pieces += 1
        return self._pieces - 1


def _by_policy(pieces: Iterable[Piece]) -> list[tuple[str, list[Piece]]]:
    found: dict[str, list[Piece]] = {}
    for piece in sorted(pieces, key=lambda piece: piece.order):
        found.setdefault(piece.policy_id, []).append(piece)
    return list(found.items())


def _joined(ready: list[PieceBatch], policies: Mapping[str, PolicyLanes]) -> dict[str, SampleBatch]:
    found: dict[str, list[SampleBatch]] = {}
    for piece, batch in sorted(ready, key=lambda each: each.piece.order):
        found.setdefault(piece.policy_id, []).append(batch)
    return {
        policy_id: policies[policy_id].for_training(SampleBatch.concat(batches))
        for policy_id, batches in found.items()
    }
