"""Pages of a store of rollouts that batches show in place."""

# Rules: collectors CB8

from __future__ import annotations

import weakref
from collections.abc import Collection
from functools import partial
from typing import Any

from numpy.typing import NDArray

from headrace.forking import ForkFollowers
from headrace.leases.grantor import Segment
from headrace.store.pages.held_array import held_array
from headrace.store.records import WIDEST
from headrace.store.store import Store

# Pages that stay free for the writer: what it leases for the next rollouts, and for the final rows of their episodes.
_KEPT_FREE = 6
# A column with fewer bytes in a page is copied: that takes less time than lending.
_LEAST_NBYTES = 1 << 17

_LENDERS = ForkFollowers()


class LentPages:
    """Lends whole pages of a store to batches, while enough pages stay free for its writer.

    A lent page is used again when the last array over it is garbage. Until then it belongs to the batch: the writer
    does not write there, and no other reader looks there.

    A forked child has a copy of the pages that were lent at the fork. The parent never uses these again if they are in
    shared memory.

    Args:
        store: of rollouts, one a page with the observations after it, each of which is read once.

    >>> import numpy as np
    >>> from headrace.spec import ArraySpec, Signature
    >>> signature = Signature({"observation": ArraySpec((1 << 16,), np.uint8), "reward": ArraySpec((), np.float32)})
    >>> store = Store(signature, page_rows=4, num_pages=16)
    >>> page = store.acquire(lanes=2)
    >>> {name: array.shape for name, array in LentPages(store).lend([Segment(page, 0, 1)], 2).items()}
    {'observation': (2, 2, 65536)}
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        page_rows = store.arrays.page_rows
        self._names = [
            name
            for name, spec in store.signature.columns.items()
            if spec.nbytes > WIDEST and spec.nbytes * page_rows >= _LEAST_NBYTES
        ]
        # The arrays that are alive, by page and column. All arrays over the same memory refer to them.
        self._lent: weakref.WeakValueDictionary[tuple[int, str], NDArray[Any]] = weakref.WeakValueDictionary()
        if store.arena.is_shareable:  # Private memory is copied at a fork by the system.
            _LENDERS.add(self)

    def lend(self, segments: Collection[Segment], lanes: int) -> dict[str, NDArray[Any]]:
        """Returns the wide columns of a rollout in place, and what follows its last step: `[n, T + 1, ...]`.

        It is empty if too few pages are free, or the rollout is not one whole page.

        Args:
            segments: the steps of the rollout, whose pages are held.
            lanes: n.
        """
        store = self._store
        page, steps_in_page = next(iter(segments)).page, store.arrays.page_rows // lanes
        steps = sum(segment.stop - segment.start for segment in segments)
        is_page = all(segment.page == page for segment in segments) and steps + 1 == steps_in_page
        if not (self._names and is_page):
            return {}
        first = page * store.arrays.page_rows
        columns: dict[str, NDArray[Any]] = {}
        with store.lock:
            if store.free_pages() < _KEPT_FREE:
                return {}
            for name in self._names:
                rows = store.columns[name][first : first + steps_in_page * lanes]
                store.pins.pin_page(page, 1)
                array = held_array(
                    rows.reshape(steps_in_page, lanes, *rows.shape[1:]), partial(self._drop, page)
                )
                self._lent[page, name] = array
                columns[name] = array.swapaxes(0, 1)
        return columns

    def _drop(self, page: int) -> None:
        # A method of this object, which so lives as long as the arrays: a fork may come after the end of the collector.
        self._store.drop((page,))

    # ---- forks -----------------------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keeps the pages that are lent from being used again: the child reads them until it has copies."""
        self._store.lock.acquire()
        for page in {page for page, _ in self._lent}:
            self._store.pins.pin_page(page, 1)

    def after_fork_in_parent(self) -> None:
        """Lets other threads lend again."""
        self._store.lock.release()

    def after_fork_in_child(self) -> None:
        """Copies the lent pages at their place: later writes of the two processes do not meet."""
        for array in self._lent.values():
            self._store.arena.detach(array)
        self._store.lock.release()
