"""Admission of rollouts: which worker may begin one, and when."""

# Rules: collectors CV7, CV8, CR3, CR4

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple, Protocol

from headrace.collectors.multi.staleness import Staleness
from headrace.collectors.multi.turns import LongestIdle, Turns
from headrace.collectors.statistics import Tally


class Grant(Protocol):
    """Lets a worker begin a rollout."""

    def __call__(self, worker_idx: int, *, at_random: bool) -> None:
        """Tells it so."""
        ...


class _Suspension(NamedTuple):
    """One `with` block of `Admission.suspended`.

    Attributes:
        thread: that lets no worker begin.
        number: of those so far.
    """

    thread: int
    number: int


class Admission:
    """Lets workers begin rollouts, as far as they are owed and allowed. Thread-safe.

    A rollout is owed for each free slot of a worker: two at first, one more for each of its rollouts that was handed
    out or written. A synchronous collector owes each worker one rollout for every batch that is asked for.

    It is granted when no items of the worker's earlier rollouts wait for a rate limiter, and when the frames of all
    rollouts under way cannot reach `total_frames` already. A synchronous batch is begun as a whole. Where staleness is
    bounded, a rollout must be allowed by that too.

    Args:
        tally: frames so far.
        frames: of a rollout of each worker without masked rows.
        total_frames: -1 is no end.
        random_frames: rollouts act at random while fewer frames were begun before their batch.
        rollouts_make_a_batch: whether one rollout of each worker makes a batch; else each is a batch.
        max_staleness: see `Staleness`.
        is_blocked: returns whether this worker may begin no rollout now; `unblocked` follows.
        grant: lets a worker begin a rollout.
        turns: the order of the workers; None: the one that has been idle for longest comes first.
        submit: makes a call where Ctrl-C does not come, soon.

    Ctrl-C must not end a method in the middle, so a thread that it may come to calls those alone of which it is said.

    >>> begun = []
    >>> admission = Admission(
    ...     Tally(), [10], 20, 0, False, None, lambda worker: False, lambda worker, at_random: begun.append(worker)
    ... )
    >>> admission.owe(0, 2); admission.owe(0)
    >>> begun
    [0, 0]
    """

    def __init__(
        self,
        tally: Tally,
        frames: Sequence[int],
        total_frames: int,
        random_frames: int,
        rollouts_make_a_batch: bool,
        max_staleness: int | None,
        is_blocked: Callable[[int], bool],
        grant: Grant,
        turns: Turns | None = None,
        submit: Callable[[Callable[[], None]], object] = lambda call: call(),
    ) -> None:
        self._tally = tally
        self._frames = frames
        self._total = total_frames
        self._random = random_frames
        self._batch_frames = sum(frames) if rollouts_make_a_batch else 1
        self._is_blocked = is_blocked
        self._grant = grant
        self._staleness = Staleness(max_staleness)
        self._submit = submit
        # Workers that are owed rollouts.
        self._turns: Turns = LongestIdle(len(frames)) if turns is None else turns
        self._owed = [0] * len(frames)
        # Rollouts that were begun and not handed out, and their frames.
        self._under_way = [0] * len(frames)
        self._frames_under_way = 0
        # Of these, the rollouts that are complete.
        self._complete = [0] * len(frames)
        self._begun = 0
        # Asked for as whole batches, which are begun even where a part of one reaches the total.
        self._by_batch = False
        # By which no worker may begin.
        self._suspension: _Suspension | None = None
        self._suspensions = itertools.count()
        self._lock = threading.Lock()

    def owe(self, worker_idx: int, count: int = 1) -> None:
        """Adds `count` free slots to a worker, so that it may begin as many more rollouts."""
        with self._lock:
            self._owe(worker_idx, count)
        self._settle()

    def owe_all(self, counts: Sequence[int]) -> None:
        """Adds free slots to all workers at once, so that they take turns; see `owe`."""
        with self._lock:
            for worker_idx, count in enumerate(counts):
                self._owe(worker_idx, count)
        self._settle()

    def owe_batch(self) -> None:
        """Adds a free slot to each worker: a synchronous batch is asked for."""
        with self._lock:
            self._by_batch = True
            for worker_idx in range(len(self._owed)):
                self._owe(worker_idx, 1)
        self._settle()

    def _owe(self, worker_idx: int, count: int) -> None:
        self._owed[worker_idx] += count
        self._enqueue(worker_idx)

    def _enqueue(self, worker_idx: int) -> None:
        if self._owed[worker_idx]:
            self._turns.add(worker_idx, self._under_way[worker_idx] - self._complete[worker_idx])

    def completed(self, worker_idx: int) -> None:
        """Notes that a worker has completed a rollout."""
        with self._lock:
            self._complete[worker_idx] += 1
            self._enqueue(worker_idx)

    def done(self, worker_idx: int) -> None:
        """Notes that a complete rollout of a worker was handed out or written."""
        with self._lock:
            self._under_way[worker_idx] -= 1
            self._frames_under_way -= self._frames[worker_idx]
            self._complete[worker_idx] -= 1
            self._staleness.handed_out(worker_idx)

    def lost(self, worker_idx: int) -> None:
        """Notes that the rollouts that a worker had begun and not completed are lost: they are owed again."""
        with self._lock:
            self._owe(worker_idx, self._drop(worker_idx))
        self._settle()

    def forgive(self, worker_idx: int) -> None:
        """Takes the free slots of a worker away: the batch that it was to be part of came without it."""
        with self._lock:
            self._owed[worker_idx] = 0

    def drop(self, worker_idx: int) -> None:
        """Forgets the rollouts that a worker had begun and not completed."""
        with self._lock:
            self._drop(worker_idx)

    def _drop(self, worker_idx: int) -> int:
        dropped = self._under_way[worker_idx] - self._complete[worker_idx]
        self._under_way[worker_idx] -= dropped
        self._frames_under_way -= dropped * self._frames[worker_idx]
        self._begun -= dropped * self._frames[worker_idx]
        self._staleness.lost(worker_idx, dropped)
        return dropped

    def published(self) -> None:
        """Notes that new weights were published. Any thread calls it, and Ctrl-C may come."""
        with self._lock:
            self._staleness.published()
        if self._staleness.is_bounded:
            self._submit(self._settle)

    @contextmanager
    def request(self) -> Iterator[None]:
        """The learner waits for a batch within a `with` block. Any thread calls it, and Ctrl-C may come."""
        learner = threading.get_ident()
        try:
            with self._lock:
                self._staleness.request(learner)
            if self._staleness.is_bounded:
                self._submit(self._settle)
            suspension = self._suspension
            if suspension is not None and suspension.thread == learner:
                # Ctrl-C has ended `suspended` before it could take that back.
                self._submit(partial(self._go_on, suspension))
            yield
        finally:
            with self._lock:
                self._staleness.end_request(learner)

    @property
    def order(self) -> Sequence[int] | None:
        """See `Staleness.order`."""
        with self._lock:
            return self._staleness.order

    def is_collecting(self, worker_idx: int) -> bool:
        """Returns whether a worker has begun a rollout that is not complete."""
        return self._under_way[worker_idx] > self._complete[worker_idx]

    def is_idle(self, worker_idx: int) -> bool:
        """Returns whether all rollouts that a worker has begun were handed out or written."""
        return self._under_way[worker_idx] == 0

    def unblocked(self, worker_idx: int) -> None:
        """Notes that a worker may begin rollouts again. Any thread calls it, and Ctrl-C may come."""
        self._submit(partial(self._unblock, worker_idx))

    def _unblock(self, worker_idx: int) -> None:
        with self._lock:
            self._turns.unblock(worker_idx)
            self._enqueue(worker_idx)
        self._settle()

    def _settle(self) -> None:
        """Grants the rollouts that are owed and allowed."""
        with self._lock:
            while self._may_begin() and (worker_idx := self._turns.take()) is not None:
                if self._is_blocked(worker_idx):
                    self._turns.block(worker_idx)
                else:
                    self._begin(worker_idx)
                    self._enqueue(worker_idx)

    def _begin(self, worker_idx: int) -> None:
        before = self._begun // self._batch_frames * self._batch_frames
        self._owed[worker_idx] -= 1
        self._under_way[worker_idx] += 1
        self._frames_under_way += self._frames[worker_idx]
        self._begun += self._frames[worker_idx]
        self._turns.begun(worker_idx)
        self._staleness.begun(worker_idx)
        self._grant(worker_idx, at_random=before < self._random)

    @property
    def begun(self) -> int:
        """Frames of all rollouts that were begun."""
        return self._begun

    def under_way(self, worker_idx: int) -> int:
        """Returns the number of rollouts of a worker that were begun and not handed out."""
        return self._under_way[worker_idx]

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Lets no worker begin a rollout for the time of a `with` block. Any thread calls it, and Ctrl-C may come."""
        suspension = _Suspension(threading.get_ident(), next(self._suspensions))
        go_on = partial(self._go_on, suspension)
        try:
            with self._lock:
                self._suspension = suspension
            yield
        finally:
            try:
                self._submit(go_on)
            except BaseException:
                # Ctrl-C, perhaps before the call. A free run makes no request that would go on.
                self._submit(go_on)
                raise

    def _go_on(self, suspension: _Suspension) -> None:
        with self._lock:
            if self._suspension != suspension:  # Another one has begun meanwhile.
                return
            self._suspension = None
        self._settle()

    def state_dict(self, in_progress: Sequence[bool]) -> dict[str, Any]:
        """Returns the rollouts that were begun, and those that are owed.

        Args:
            in_progress: whether each worker has begun a rollout that is not complete. Those that it was only allowed to
                begin are owed.
        """
        with self._lock:
            begun, owed, staleness = self._begun, list(self._owed), deepcopy(self._staleness)
            for worker_idx, is_begun in enumerate(in_progress):
                allowed = self._under_way[worker_idx] - self._complete[worker_idx] - is_begun
                begun -= allowed * self._frames[worker_idx]
                owed[worker_idx] += allowed
                staleness.lost(worker_idx, allowed)
            return {"begun": begun, "owed": owed, "by_batch": self._by_batch, **staleness.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any], in_progress: Sequence[bool]) -> None:
        """Goes on from a state, without the free slots: the caller adds them.

        Args:
            state: of `state_dict`.
            in_progress: as it was given.
        """
        with self._lock:
            self._begun, ahead = state["begun"], state["ahead"]
            self._under_way = [ahead.count(worker_idx) for worker_idx in range(len(in_progress))]
            self._frames_under_way = sum(self._frames[worker_idx] for worker_idx in ahead)
            self._complete = [
                count - is_begun for count, is_begun in zip(self._under_way, in_progress, strict=True)
            ]
            self._staleness.load_state_dict(state)
            self._by_batch = state["by_batch"]
            self._turns.clear()
            self._owed = [0] * len(in_progress)

    def _may_begin(self) -> bool:
        """Whether a rollout of a worker that is not blocked may begin."""
        if self._suspension is not None or not self._staleness.may_begin:
            return False
        # Rows that will be masked are not known yet, so those under way count in full.
        return self._by_batch or self._total < 0 or self._tally.frames + self._frames_under_way < self._total
