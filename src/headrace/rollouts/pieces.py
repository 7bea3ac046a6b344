"""Pieces: the rows of one agent, one episode and one fragment, which postprocessing takes together."""

# Rules: views-rollouts R5, R6, R10, R11

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.rollouts.episode import RolloutEpisode
from headrace.views.arrays.rows import Segments


class SampleKey(NamedTuple):
    """The trajectory of one agent in one episode."""

    env_index: int
    episode_id: int
    agent_id: Any


@dataclass(slots=True, eq=False)
class AgentRun:
    """One agent in one episode of an environment with several.

    Attributes:
        agent_id: of the agent.
        policy_id: of the policy that acts for it.
        lane: of the policy; where its rows are; -1: none are kept.
        piece: its present piece; None once it has ended, or before its first row.
        begin: first row that is kept, counted from the first row of the lane.
        stop: its newest row once it has ended.
        reward: sum of the rewards since it acted last.
        last_is_known: whether it ended with a final observation.
        has_acted: whether a step is open: it acted, and has not been observed since.
        is_done: whether it has ended.
        is_released: whether its lane was given back.
    """

    agent_id: Any
    policy_id: str = ""
    lane: int = -1
    piece: Piece | None = None
    begin: int = 0
    stop: int = -1
    reward: float = 0.0
    last_is_known: bool = True
    has_acted: bool = False
    is_done: bool = False
    is_released: bool = False


NO_PEERS: Mapping[Any, AgentRun] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Piece:
    """Rows of one agent, one episode and one fragment, which lie one after another in a lane.

    Rows are counted from the first row of the lane.

    Attributes:
        key: of the trajectory.
        place: place of the agent among those of its episode, in order of appearance.
        agent_index: of the agent in `possible_agents`.
        policy_id: of the policy that acts for it.
        episode: for callbacks.
        lane: where the rows are.
        begin: first row that look-back may read: the first of the trajectory, or of what is kept of it.
        first: first row of the piece.
        t: the agent's step number at that row.
        fragment_id: of the piece.
        peers: the agents of the episode by id, itself included.
        stop: row after the last one.
        last_is_known: whether row `stop` has an observation: the one after the last step.
        batch: its rows, if a user's collector made them.
        error: raised by that collector instead; the fragment that would have the rows raises it.
    """

    key: SampleKey
    place: int
    agent_index: int
    policy_id: str
    episode: RolloutEpisode
    lane: int
    begin: int
    first: int
    t: int
    fragment_id: int
    peers: Mapping[Any, AgentRun]
    stop: int = -1
    last_is_known: bool = True
    batch: Any = None
    error: Exception | None = None

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Sorts pieces by environment, episode, agent and time."""
        return self.key.env_index, self.key.episode_id, self.place, self.first

    def numbers(self, t: int) -> dict[str, int]:
        """Returns the bookkeeping of the agent's row `t`, where `t` counts environment steps too."""
        return {
            "episode_id": self.key.episode_id,
            "t": t,
            "env_t": t,
            "fragment_id": self.fragment_id,
            "env_id": self.key.env_index,
            "agent_index": self.agent_index,
        }


class PieceRows(NamedTuple):
    """The rows of several pieces, one piece after another.

    Attributes:
        counts: int64[P], rows of each piece.
        segments: of the rows.
    """

    counts: NDArray[np.int64]
    segments: Segments

    @classmethod
    def of(cls, pieces: Sequence[Piece], first_rows: NDArray[np.int64]) -> PieceRows:
        """Returns the rows of pieces.

        Args:
            pieces: each has ended.
            first_rows: int64[lanes], the first row of each lane.
        """
        bounds = [(piece.lane, piece.begin, piece.first, piece.stop, piece.last_is_known) for piece in pieces]
        lanes, begins, firsts, stops, known = np.array(bounds, np.int64).reshape(-1, 5).T
        bases, counts = first_rows[lanes], stops - firsts
        places = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        post_ends = np.repeat(bases + stops, counts)
        segments = Segments(
            np.repeat(bases + firsts, counts) + places,
            np.repeat(bases + begins, counts),
            post_ends + np.repeat(known, counts),
            post_ends,
            places,
        )
        return cls(counts, segments)

    @property
    def bounds(self) -> list[int]:
        """The first row of each piece, and the number of rows of all."""
        return [0, *np.cumsum(self.counts).tolist()]

    def bookkeeping(self, pieces: Sequence[Piece]) -> dict[str, NDArray[np.int64]]:
        """Returns the bookkeeping columns, except `env_t`, which lanes hold where it differs from `t`."""
        numbers = [
            (piece.key.episode_id, piece.t, piece.fragment_id, piece.key.env_index, piece.agent_index)
            for piece in pieces
        ]
        columns = np.repeat(np.array(numbers, np.int64).reshape(-1, 5), self.counts, axis=0).T.copy()
        episode_id, t, fragment_id, env_id, agent_index = columns
        t += self.segments.places
        return {
            "episode_id": episode_id,
            "t": t,
            "env_t": t.copy(),
            "fragment_id": fragment_id,
            "env_id": env_id,
            "agent_index": agent_index,
        }

    def sequence_lengths(self, longest: int) -> NDArray[np.int64]:
        """Returns the lengths of the sequences into which each piece is cut from its first row."""
        starts = np.flatnonzero(self.segments.places % longest == 0)
        return np.diff(starts, append=len(self.segments.places))
