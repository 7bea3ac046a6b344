"""From committed steps to batches `[n, T, ...]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.collectors.batches.batch import Batch, as_trees
from headrace.collectors.batches.episode_numbering import EpisodeNumbering
from headrace.collectors.batches.view_columns import ViewColumns
from headrace.leases.grantor import Segment
from headrace.spec import Signature
from headrace.store.layout import EMPTY, FINAL, LINKED, NEXT, STEP_MASK
from headrace.store.store import Store

Columns = Mapping[str, NDArray[Any]]


class BlockReader:
    """Copies committed steps into batches. Their pages are held until then.

    Args:
        store: has the rows.
        lanes: n.
        observed: names of the columns that an observation has.
        numbering: of the episodes; goes on from store to store.
        views: further columns; as `numbering`.
        worker_idx: the worker that collects.
    """

    def __init__(
        self,
        store: Store,
        lanes: int,
        observed: Iterable[str],
        numbering: EpisodeNumbering,
        views: ViewColumns,
        worker_idx: int | None = None,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._observed = frozenset(observed).intersection(store.columns)
        tree = store.signature.tree
        self._following = Signature({name: tree[name] for name in tree if _is_observed(name, self._observed)})
        self._numbering = numbering
        self._views = views
        views.use(store.signature, self._observed)
        self._worker_idx = worker_idx
        self._segments: list[Segment] = []

    def add(self, segment: Segment) -> None:
        """Adds steps to the next batch. The store's lock must be held."""
        self._store.pins.pin_page(segment.page, 1)
        self._segments.append(segment)

    def forget(self) -> None:
        """Forgets the steps that were added."""
        with self._store.lock:
            while self._segments:
                self._store.release(self._segments.pop().page)

    def take(self) -> Batch:
        """Returns the steps added since the last call as one batch."""
        store, segments = self._store, self._segments
        try:
            with store.lock:
                words, versions, last = self._marks(segments)
                time, lane = np.nonzero(words & LINKED)
                finals = self._finals(segments, words)
                reader = store.begin_reading()
            try:
                columns = {name: self._copied(name, segments) for name in store.columns}
                following = {name: self._shifted(name, columns[name], last) for name in self._observed}
                for name, column in following.items():
                    column[lane, time] = store.columns[name][finals]
                store.check_rows_were_ours()
            finally:
                reader.end()
        finally:
            self.forget()
        masked = (words & (FINAL | EMPTY)) != 0
        starts = ((words & STEP_MASK) == 0) & ~masked
        ids, positions = self._numbering.number(starts, masked)
        stamps = np.repeat(versions[None], self._lanes, axis=0)
        counted = {"episode_id": ids, "t": positions, "policy_version": stamps}
        mask = ~masked.T.copy()
        _zero_masked(mask, (*columns.values(), *following.values(), stamps))
        after = as_trees(self._following, following)["observation"]
        trees = as_trees(store.signature, columns)
        ordered = _ordered(trees, after, counted | {"mask": mask})
        shown = self._views.present(columns | counted, following, mask)
        return Batch(ordered | shown, self._worker_idx, self._views.shown)

    def _rows(self, array: NDArray[Any], segment: Segment) -> NDArray[Any]:
        """Returns the entries of a segment in an array by row, `[steps, n, ...]`."""
        first = segment.page * self._store.arrays.page_rows
        rows = array[first + segment.start * self._lanes : first + segment.stop * self._lanes]
        return rows.reshape(segment.stop - segment.start, self._lanes, *rows.shape[1:])

    def _marks(self, segments: list[Segment]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Returns int64[T, n], the words of the rows; int64[T], the versions; and the first row after the last step."""
        arrays, versions = self._store.arrays, []
        for page, start, stop in segments:
            first = page * arrays.page_rows
            versions.append(self._store.versions[first + start : first + stop])
        words = np.concatenate([self._rows(arrays.steps, segment) for segment in segments])
        page, _, stop = segments[-1]
        last = page * arrays.page_rows + stop * self._lanes
        if stop == arrays.page_rows // self._lanes:
            following = int(arrays.pages[page, NEXT])
            # A writer that fills a page without having the next one has nowhere to write what follows.
            last = last - self._lanes if following < 0 else following * arrays.page_rows
        return words.astype(np.int64), np.concatenate(versions).astype(np.int64), last

    def _finals(self, segments: list[Segment], words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns int64[m], the final rows of the linked steps, in the order of steps."""
        links = np.concatenate([self._rows(self._store.arrays.links, segment) for segment in segments])
        finals: NDArray[np.int64] = links[(words & LINKED) != 0].astype(np.int64) - 1
        return finals

    def _copied(self, name: str, segments: list[Segment]) -> NDArray[Any]:
        """Returns a column as `[n, T, ...]`."""
        source = self._store.columns[name]
        steps = sum(segment.stop - segment.start for segment in segments)
        copy, at = np.empty((self._lanes, steps, *source.shape[1:]), source.dtype), 0
        for segment in segments:
            rows = self._rows(source, segment)
            copy[:, at : at + len(rows)] = rows.swapaxes(0, 1)
            at += len(rows)
        return copy

    def _shifted(self, name: str, column: NDArray[Any], last: int) -> NDArray[Any]:
        """Returns for each step of a column `[n, T, ...]` the value that follows in its lane."""
        following = np.empty_like(column)
        following[:, :-1] = column[:, 1:]
        following[:, -1] = self._store.columns[name][last : last + self._lanes]
        return following


def _zero_masked(mask: NDArray[np.bool_], columns: Iterable[NDArray[Any]]) -> None:
    """Writes zeros into the rows of columns `[n, T, ...]` where `mask`, bool[n, T], is False."""
    if not mask.all():
        for column in columns:
            column[~mask] = 0


def _ordered(trees: dict[str, Any], following: Any, counted: dict[str, Any]) -> dict[str, Any]:
    """Returns trees of columns `[n, T, ...]` in the order of a batch, without copies.

    Args:
        trees: of the columns of the steps.
        following: the observations that followed.
        counted: ids, indices and versions of each step, and the mask.
    """
    ordered = {name: trees[name] for name in ("observation", "action", "reward", "terminated", "truncated")}
    ordered["next_observation"] = following
    ordered |= counted
    ordered.update({name: tree for name, tree in trees.items() if name not in ordered})
    return ordered


def _is_observed(name: str, observed: Iterable[str]) -> bool:
    return any(column == name or column.startswith(f"{name}/") for column in observed)
