"""Complete episodes of a replay, copied from its store."""

from __future__ import annotations

import logging
import operator
import threading
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.datasets.stored_rows import episode_maker
from headrace.replay import Replay
from headrace.replay.public import core_of
from headrace.spec import Signature
from headrace.store.layout import FINAL, LANES, PREVIOUS, STARTS, STEP_MASK
from headrace.store.store import Store
from headrace.trajectories.episode import Episode

_log = logging.getLogger(__name__)

# No episode is longer.
_FURTHEST = STEP_MASK


def episodes(replay: Replay | StoredSteps) -> ReplayEpisodes:
    """Returns the complete episodes of a replay: lane by lane, oldest first, each once however many items refer to it.

    The episodes are those stored at the time of the call. Rows are held only while one episode is copied, so writers
    and learners continue during an iteration. Three kinds of episodes are left out: those whose rows are overwritten
    before their turn, those whose first rows are overwritten already, and those without a final row yet. The iterator
    counts them in `left_out`.

    Args:
        replay: its signature is that of a `Trajectory`, or has the columns of the step writers: `observation`,
            `action`, `reward`, `terminated` and `truncated`. Further columns, also those in `extras`, become extras.

    Raises:
        SpecError: another signature.
        Closed: the replay is closed, now or during the iteration.

    >>> import headrace as hr
    >>> step = {"observation": 0.0, "action": 0, "reward": 1.0, "terminated": False, "truncated": False}
    >>> replay = hr.Replay(hr.Signature.like(step), [hr.Table.queue("t", 100)])
    >>> with replay.writer(items=[hr.ItemRule("t", length=1)]) as writer:
    ...     writer.append(step)
    ...     writer.end_episode({"observation": 1.0})
    ...     writer.append(step)
    >>> found = episodes(replay)
    >>> [episode.observations for episode in found], found.left_out
    ([array([0., 1.])], 1)
    >>> replay.close()
    """
    return ReplayEpisodes(core_of(replay) if isinstance(replay, Replay) else replay)


class StoredSteps(Protocol):
    """Stored steps of a `Replay`, or of a checkpoint or a store on disk that is open for reading only."""

    @property
    def signature(self) -> Signature:
        """Signature of one step."""

    @property
    def final_columns(self) -> frozenset[str]:
        """Columns that have a value in final rows."""

    @property
    def is_closed(self) -> bool:
        """Whether the steps are closed."""

    store: Store
    lock: threading.RLock

    def check_open(self) -> None:
        """Raises `Closed` if the steps are closed."""


class ReplayEpisodes(Iterator[Episode]):
    """Iterator over the episodes of `episodes`.

    Attributes:
        left_out: number of incomplete episodes so far.
    """

    def __init__(self, replay: StoredSteps) -> None:
        self._replay = replay
        self._store: Store = replay.store
        with replay.lock:
            replay.check_open()
            self._make = episode_maker(replay.signature)
            begins, self.left_out = _episodes_that_begin(self._store)
        self._begins = iter(begins)
        self._is_done = False

    def __next__(self) -> Episode:
        for begin in self._begins:
            episode = self._copy(begin)
            if episode is not None:
                return episode
            self.left_out += 1
        if self.left_out and not self._is_done:
            _log.info("%d episodes of the replay are not complete and were left out", self.left_out)
        self._is_done = True
        raise StopIteration

    def __length_hint__(self) -> int:
        """Returns an upper bound of the number of remaining episodes, for progress bars."""
        return operator.length_hint(self._begins)

    def _copy(self, begin: _Begin) -> Episode | None:
        """Returns the episode in new arrays; None if it is not complete."""
        store, replay = self._store, self._replay
        reader = None
        try:
            with replay.lock:
                replay.check_open()
                reader = store.begin_reading()
                rows = _rows(store, begin)
                if rows is None:
                    return None
                # The first final row of a replay determines the columns of all.
                final_columns = replay.final_columns if store.arrays.steps[rows[-1]] & FINAL else None
            # `take` would first copy the whole of a small column, because small columns are fields of records.
            columns = {name: column[rows] for name, column in store.columns.items()}
            store.check_rows_were_ours()
        finally:
            if reader is not None:
                reader.end()
        return self._make(columns, final_columns)


class _Begin(NamedTuple):
    """First row of an episode, and its id, which shows whether the row was overwritten."""

    row: int
    episode_id: int


def _episodes_that_begin(store: Store) -> tuple[list[_Begin], int]:
    """Returns the episodes whose first row is stored, and the number of those of which only later rows are.

    The episodes are ordered by lane, oldest first. The caller holds the lock. The cost grows with the number of
    episodes and pages, and is independent of the number of rows.
    """
    arrays = store.arrays
    statistics = store.statistics()
    pages = arrays.pages[: statistics.pages + statistics.free_pages]
    rows: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    ids: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    homes: list[int] = []
    for page in np.flatnonzero(pages[:, STARTS]).tolist():
        first = page * arrays.page_rows
        entries = slice(first, first + int(pages[page, STARTS]))
        rows.append(first + arrays.start_rows[entries].astype(np.int64))
        ids.append(arrays.start_ids[entries].copy())
        homes += [page] * len(ids[-1])
    all_rows, all_ids, page_of = np.concatenate(rows), np.concatenate(ids), np.array(homes, np.int64)
    begins = (arrays.steps[all_rows] & STEP_MASK) == 0
    chain_of, lanes_of = _chains(pages), pages[:, LANES].copy()
    chains = chain_of[page_of]
    oldest = np.full(len(pages), np.iinfo(np.int64).max)
    np.minimum.at(oldest, chains, all_ids)
    in_lane = (all_rows - page_of * arrays.page_rows) % np.maximum(lanes_of[page_of], 1)
    order = np.lexsort((all_ids, in_lane, oldest[chains]))
    order = order[begins[order]]
    found = [
        _Begin(row, number)
        for row, number in zip(all_rows[order].tolist(), all_ids[order].tolist(), strict=True)
    ]
    return found, len(np.unique(all_ids)) - len(found)


def _chains(pages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns for each page the first of the pages linked to it, which hold the same lanes."""
    first = np.arange(len(pages))
    previous = np.where(pages[:, PREVIOUS] >= 0, pages[:, PREVIOUS], first)
    while True:
        further = previous[previous]  # Each round goes back twice as far.
        if np.array_equal(further, previous):
            return previous
        previous = further


def _rows(store: Store, begin: _Begin) -> NDArray[np.int64] | None:
    """Returns all stored rows of the episode in order; None if its first row was overwritten.

    The caller holds the lock.
    """
    arrays = store.arrays
    page = begin.row // arrays.page_rows
    in_page = begin.row - page * arrays.page_rows
    starts = slice(page * arrays.page_rows, page * arrays.page_rows + int(arrays.pages[page, STARTS]))
    here = arrays.start_ids[starts] == begin.episode_id
    if not (here & (arrays.start_rows[starts] == in_page)).any():
        return None
    last = store.window.newest(begin.row, _FURTHEST)
    count = int(arrays.steps[last] & STEP_MASK) + 1
    rows: NDArray[np.int64] = np.empty((1, count), np.int64)
    store.window.rows_of_windows(np.array([begin.row]), np.array([count], np.uint32), rows)
    return rows.reshape(-1)
