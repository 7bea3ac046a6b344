"""From committed steps to batches `[n, T, ...]`."""

# Rules: collectors CB4, CB8

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch_maker import NOTHING, BatchArrays, InPlace
from headrace.collectors.batches.copy_threads import ONE_THREAD, CopyThreads
from headrace.collectors.batches.lent_pages import LentPages
from headrace.leases.grantor import Segment
from headrace.spec import Signature
from headrace.store.gather import gather_into
from headrace.store.layout import BY_ROW, EMPTY, FINAL, LINKED, NEXT, STEP_MASK, VERSIONED
from headrace.store.store import Store


class BlockReader:
    """Copies committed steps into batches, or shows them in place. Their pages are held until then.

    Args:
        store: has the rows.
        lanes: n.
        observed: names of the columns that an observation has.
        lender: lends pages to batches; None: all is copied.
    """

    def __init__(
        self, store: Store, lanes: int, observed: Iterable[str], lender: LentPages | None = None
    ) -> None:
        self._store = store
        self._lender = lender
        self._lanes = lanes
        self.observed = frozenset(observed).intersection(store.columns)
        self._segments: list[Segment] = []
        # Pages of these segments in which the writer neither reads nor writes any more.
        self._left: set[int] = set()

    @property
    def signature(self) -> Signature:
        """Of the steps."""
        return self._store.signature

    @property
    def steps(self) -> int:
        """The number of steps added since the last call of `copy_into`."""
        return sum(segment.stop - segment.start for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Adds steps to the next batch. The store's lock must be held."""
        self._store.pins.pin_page(segment.page, 1)
        self._segments.append(segment)
        self._left.discard(segment.page)

    def leave(self, page: int) -> None:
        """Notes that the writer has left a page. The store's lock must be held."""
        self._left.add(page)

    def in_place(self) -> InPlace:
        """Returns what needs no copy of the steps added since the last call of `copy_into`."""
        lent = {} if self._lender is None else self._lender.lend(self._segments, self._lanes)
        if not lent:
            return NOTHING
        following = self._following_in_place(lent)
        return InPlace(
            {name: column[:, :-1] for name, column in lent.items()},
            {name: lent[name][:, 1:] for name in following},
        )

    def _following_in_place(self, lent: Mapping[str, NDArray[Any]]) -> frozenset[str]:
        """Returns the columns of which the observations that followed stand one row below each step.

        Where episodes end with the last step of a page that the writer has left, their final rows are copied below it:
        a rollout that ends with its episodes needs no copy of all its frames.
        """
        words, observed = self._words(self._segments), self.observed.intersection(lent)
        # Elsewhere the next observation is a final row, or the batch has zeros where the final row stands.
        apart = words & (LINKED | FINAL | EMPTY) != 0
        if not apart.any():
            return observed
        with self._store.lock:
            if apart[:-1].any() or (words[-1] & (FINAL | EMPTY)).any() or not self._is_left():
                return frozenset()
            finals = self._finals(self._segments, apart)
        for name in observed:
            lent[name][apart[-1], -1] = self._store.columns[name][finals]
        return observed

    def _is_left(self) -> bool:
        return all(segment.page in self._left for segment in self._segments)

    def forget(self) -> None:
        """Forgets the steps that were added."""
        with self._store.lock:
            while self._segments:
                self._store.release(self._segments.pop().page)
            self._left.clear()

    def copy_into(
        self, arrays: BatchArrays, first: int, threads: CopyThreads = ONE_THREAD, at: int = 0
    ) -> None:
        """Copies the steps as `copy` does, and forgets them."""
        try:
            self.copy(arrays, first, threads, at)
        finally:
            self.forget()

    def copy(self, arrays: BatchArrays, first: int, threads: CopyThreads = ONE_THREAD, at: int = 0) -> None:
        """Copies the steps added since the last call of `forget` into the lanes of a batch from `first` on.

        Columns that the batch shows in place are not copied. Fewer steps than the batch has leave later ones masked.

        Args:
            arrays: of the batch.
            first: the first lane.
            threads: share the copy.
            at: the step of the batch that the first of these steps is copied to; 0 for columns in place.
        """
        store, lanes = self._store, slice(first, first + self._lanes)
        with store.lock:
            words, versions, last = self._marks(self._segments)
            linked = (words & LINKED) != 0
            finals = self._finals(self._segments, linked)
            reader = store.begin_reading()
        try:
            self._copy_columns(arrays, first, at, last, linked, finals, threads)
            store.check_rows_were_ours()
        finally:
            reader.end()
        masked = (words & (FINAL | EMPTY)) != 0
        arrays.masked[at : at + len(words), lanes] = masked
        arrays.starts[at : at + len(words), lanes] = ((words & STEP_MASK) == 0) & ~masked
        for each in versions:  # One a step, or one a row.
            arrays.versions[lanes, at : at + len(each)] = each.T
            at += len(each)

    def _rows(self, array: NDArray[Any], segment: Segment) -> NDArray[Any]:
        """Returns the entries of a segment in an array by row, `[steps, n, ...]`."""
        first = segment.page * self._store.arrays.page_rows
        rows = array[first + segment.start * self._lanes : first + segment.stop * self._lanes]
        return rows.reshape(segment.stop - segment.start, self._lanes, *rows.shape[1:])

    def _marks(self, segments: list[Segment]) -> tuple[NDArray[np.int64], list[NDArray[np.int32]], int]:
        """Returns int64[T, n], the words of the rows; the versions of segments; and the first row after the last step.

        The versions are copies, `[steps, 1]` or `[steps, n]`.
        """
        arrays, versions = self._store.arrays, []
        for segment in segments:
            page, start, stop = segment
            first = page * arrays.page_rows
            if arrays.pages[page, VERSIONED] == BY_ROW:
                versions.append(self._rows(self._store.versions, segment).copy())
            else:
                versions.append(self._store.versions[first + start : first + stop, None].copy())
        words = self._words(segments)
        page, _, stop = segments[-1]
        last = page * arrays.page_rows + stop * self._lanes
        if stop == arrays.page_rows // self._lanes:
            following = int(arrays.pages[page, NEXT])
            # A writer that fills a page without having the next one has nowhere to write what follows.
            last = last - self._lanes if following < 0 else following * arrays.page_rows
        return words.astype(np.int64), versions, last

    def _words(self, segments: list[Segment]) -> NDArray[np.uint32]:
        """Returns uint32[T, n], the words of the rows."""
        return np.concatenate([self._rows(self._store.arrays.steps, segment) for segment in segments])

    def _finals(self, segments: list[Segment], linked: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Returns int64[m], the final rows of the linked steps, in the order of steps."""
        links = np.concatenate([self._rows(self._store.arrays.links, segment) for segment in segments])
        finals: NDArray[np.int64] = links[linked].astype(np.int64) - 1
        return finals

    def _copy_columns(
        self,
        arrays: BatchArrays,
        first: int,
        at: int,
        last: int,
        linked: NDArray[np.bool_],
        finals: NDArray[np.int64],
        threads: CopyThreads,
    ) -> None:
        """Copies the columns, and the observations that followed.

        Args:
            arrays: of the batch.
            first: lane of the batch that the first lane is copied into.
            at: step of the batch that the first step is copied into.
            last: the row after the last step, of the first lane.
            linked: bool[T, n], steps whose final rows stand elsewhere.
            finals: int64[m], these final rows.
            threads: share the copy.
        """
        segments, in_place = self._segments, arrays.in_place.columns
        shown = sum(column.nbytes for column in in_place.values())
        copied = self._store.signature.nbytes * linked.size - shown
        threads.share(
            self._lanes,
            copied,
            lambda begin, end: self._copy(arrays, first, slice(begin, end), segments, at, last),
        )
        time, lane = linked.nonzero()
        for name in arrays.observed.difference(in_place):
            arrays.following[name][first + lane, at + time] = self._store.columns[name][finals]
        if gathered := arrays.observed.intersection(in_place).difference(arrays.in_place.following):
            rows = self._following_rows(segments, last, linked, finals)
            threads.share(
                len(rows),
                shown,
                lambda begin, end: self._gather_following(arrays, gathered, rows, begin, end),
            )

    def _copy(
        self, arrays: BatchArrays, first: int, part: slice, segments: list[Segment], begin: int, last: int
    ) -> None:
        """Copies the columns of some lanes, and the observations that followed but for those at an episode's end.

        Args:
            arrays: of the batch.
            first: lane of the batch that the first lane is copied into.
            part: of the lanes.
            segments: the steps.
            begin: step of the batch that the first step is copied into.
            last: the row after the last step, of the first lane.
        """
        lanes = slice(first + part.start, first + part.stop)
        for name, column in arrays.columns.items():
            if name in arrays.in_place.columns:
                continue
            source, at = self._store.columns[name], begin
            for segment in segments:
                rows = self._rows(source, segment)[:, part]
                column[lanes, at : at + len(rows)] = rows.swapaxes(0, 1)
                at += len(rows)
            if name in arrays.following:
                following = arrays.following[name]
                following[lanes, begin : at - 1] = column[lanes, begin + 1 : at]
                following[lanes, at - 1] = source[last + part.start : last + part.stop]

    def _following_rows(
        self, segments: list[Segment], last: int, linked: NDArray[np.bool_], finals: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Returns int64[T, n], the rows with the observations after the steps of one page.

        Args:
            segments: the steps.
            last: the row after the last step, of the first lane.
            linked: bool[T, n], steps whose final rows stand elsewhere.
            finals: int64[m], these final rows.
        """
        page, start, _ = segments[0]
        first = page * self._store.arrays.page_rows + start * self._lanes
        rows = np.arange(first, first + linked.size).reshape(linked.shape)
        rows += self._lanes
        rows[-1] = np.arange(last, last + self._lanes)
        rows[linked] = finals
        return rows

    def _gather_following(
        self, arrays: BatchArrays, names: Iterable[str], rows: NDArray[np.int64], begin: int, end: int
    ) -> None:
        """Copies the observations after the steps `begin:end`, in `rows`, for columns that are shown in place."""
        for name in names:
            following = arrays.following[name].swapaxes(0, 1)
            gather_into(self._store.columns[name], rows[begin:end], following[begin:end])
