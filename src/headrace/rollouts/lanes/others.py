"""The other agents beside rows that are presented, for views of them."""

# Rules: views-rollouts M9

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.rollouts.columns import CLOCK
from headrace.rollouts.lanes.rows import LaneRows
from headrace.rollouts.pieces import AgentRun, Piece
from headrace.views.other_agents import Beside, OtherRows

Peers = Sequence[Mapping[Any, AgentRun]]


class HasRows(Protocol):
    """The lanes of a policy."""

    rows: LaneRows


class Others:
    """Finds the trajectories of other agents in the lanes of their policies.

    Args:
        policies: lanes by policy id.
    """

    def __init__(self, policies: Mapping[str, HasRows]) -> None:
        self._policies = policies

    def beside_pieces(
        self, pieces: Sequence[Piece], counts: NDArray[np.int64], clock: NDArray[np.int64]
    ) -> tuple[Beside, Beside]:
        """Returns the other agents beside the rows of pieces: with their open steps, and without.

        Args:
            pieces: the pieces.
            counts: int64[P], rows of each.
            clock: int64[M], environment steps between the reset and each row.
        """
        peers = [piece.peers for piece in pieces]
        return self._beside(peers, counts, clock, 1), self._beside(peers, counts, clock, 0)

    def beside_acting(self, peers: Peers, clock: NDArray[np.int64]) -> Beside:
        """Returns the other agents beside agents that act now.

        Args:
            peers: the agents of the episode of each.
            clock: int64[B], environment steps since the reset of each.
        """
        return self._beside(peers, np.ones(len(peers), np.int64), clock, 1)

    def _beside(
        self, peers: Peers, counts: NDArray[np.int64], clock: NDArray[np.int64], open_steps: int
    ) -> Beside:
        found: dict[Any, list[OtherRows]] = {}
        for agent_id in dict.fromkeys(agent_id for runs in peers for agent_id in runs):
            runs = [runs.get(agent_id) for runs in peers]
            policy_ids = dict.fromkeys(run.policy_id for run in runs if run is not None and run.lane >= 0)
            found[agent_id] = [self._rows(policy_id, runs, counts, open_steps) for policy_id in policy_ids]
        return Beside(clock, found)

    def _rows(
        self, policy_id: str, runs: Sequence[AgentRun | None], counts: NDArray[np.int64], open_steps: int
    ) -> OtherRows:
        """Returns the trajectories of one agent in the lanes of one policy."""
        rows = self._policies[policy_id].rows
        bounds = np.zeros((len(runs), 3), np.int64)
        for bound, run in zip(bounds, runs, strict=True):
            if run is None or run.policy_id != policy_id or run.lane < 0:
                continue
            newest = run.stop if run.is_done else rows.place(run.lane)
            begin, first = run.begin, int(rows.first_rows[run.lane])
            observed = newest + (not run.is_done or run.last_is_known)
            bound[:] = begin + first, observed + first, newest + first + open_steps * run.has_acted
        begins, pre_ends, post_ends = np.repeat(bounds, counts, axis=0).T
        return OtherRows(rows.arrays, rows.arrays[CLOCK], begins, pre_ends, post_ends)
