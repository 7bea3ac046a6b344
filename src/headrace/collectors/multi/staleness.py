"""Bounded staleness: how far rollouts may run ahead of the learner, so that no batch is of weights that are too old."""

# Rules: collectors CV8. The admission rule is that of AReaL (Fu et al. 2025, section 4.1), per batch.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.collectors.multi.turns import Rotation


class Staleness:
    """Decides whether one more rollout may begin. Not thread-safe.

    At most one set of weights is published between two batches. So a rollout that begins while `q` others are begun
    and not handed out is at most `q` sets behind when it is handed out in its turn, or `q + 1` sets if the publication
    that follows the newest batch is still to come.

    Args:
        bound: the largest number of sets that a batch may be behind; None: any.

    >>> staleness = Staleness(1)
    >>> staleness.begun(0); staleness.begun(1)
    >>> staleness.may_begin
    False
    >>> staleness.handed_out(0)
    >>> staleness.may_begin  # The learner may publish before it asks for the next batch.
    False
    >>> staleness.published()
    >>> staleness.may_begin
    True
    """

    def __init__(self, bound: int | None) -> None:
        self._bound = bound
        # The workers of the rollouts that were begun and not handed out, the oldest rollout first.
        self._ahead: list[int] = []
        # Whether a batch was handed out, and neither new weights nor a request for another batch have followed.
        self._publication_due = False
        # Threads that wait for a batch.
        self._learners: set[int] = set()

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound."""
        return self._bound is not None

    @property
    def may_begin(self) -> bool:
        """Whether one more rollout may begin."""
        ahead = len(self._ahead)
        return (
            self._bound is None
            or ahead + self._publication_due <= self._bound
            or (len(self._learners) > 0 and not ahead)
        )

    @property
    def order(self) -> Sequence[int] | None:
        """The workers of the rollouts that were begun, in the order in which they are handed out; None: any order."""
        return None if self._bound is None else tuple(self._ahead)

    def begun(self, worker_idx: int) -> None:
        """Notes that a worker has begun a rollout."""
        self._ahead.append(worker_idx)

    def handed_out(self, worker_idx: int) -> None:
        """Notes that the oldest rollout of a worker was handed out."""
        self._ahead.remove(worker_idx)
        self._publication_due = True

    def lost(self, worker_idx: int, count: int) -> None:
        """Notes that the newest rollouts of a worker are lost."""
        for _ in range(count):
            place = len(self._ahead) - 1 - self._ahead[::-1].index(worker_idx)
            del self._ahead[place]

    def published(self) -> None:
        """Notes that new weights are published: later rollouts begin with them."""
        self._publication_due = False

    def request(self, learner: int) -> None:
        """Notes that a thread waits for a batch; `end_request` follows."""
        self._publication_due = False
        self._learners.add(learner)

    def end_request(self, learner: int) -> None:
        """Notes that the thread waits no longer."""
        self._learners.discard(learner)

    def state_dict(self) -> dict[str, Any]:
        """Returns the workers of the rollouts that were begun, and whether a publication is due."""
        return {"ahead": list(self._ahead), "publication_due": self._publication_due}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""
        self._ahead = list(state["ahead"])
        self._publication_due = state["publication_due"]


def ahead_within(bound: int, workers: int) -> tuple[int, Rotation]:
    """Returns the bound of `Staleness`, and turns, for workers whose environments act up to one rollout ahead.

    A row may then be as old as the begin of the worker's rollout before. Between that and the hand-out of its own
    rollout come the `q` rollouts that were begun by then, the one before it, and one of each other worker, if `A`
    workers take turns: `q + A` in all. So `q <= bound - A` keeps the bound. About half of the bound as `A` lets as many
    rollouts be under way as there are workers that take turns.

    Args:
        bound: of all rows, at least 1.
        workers: W.

    >>> ahead_within(1, workers=4)[0], ahead_within(5, workers=4)[0], ahead_within(5, workers=1)[0]
    (0, 2, 4)
    """
    active = min(workers, (bound + 1) // 2)
    return bound - active, Rotation(active)
