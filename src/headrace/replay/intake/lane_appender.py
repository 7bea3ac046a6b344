"""The rows of a writer: steps of its lanes, final rows, and which items they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.ends import EndOfEpisode
from headrace.replay.intake.final_columns import FinalColumns
from headrace.replay.intake.item_builder import ItemBuilder
from headrace.spec import ArraySpec, check_array
from headrace.store.block import LaneBlock, Seam
from headrace.store.columns import LaneColumns, RowColumns
from headrace.store.staging import Stage
from headrace.store.store import Store
from headrace.tables.description.cut import CONTINUE, END_NUMBERS

if TYPE_CHECKING:
    from headrace.replay.replay import ReplayCore


class LaneAppender:
    """Writes rows and commits them. A value that does not fit, or a full store, changes nothing.

    Args:
        replay: whose store.
        lanes: how many.
        history: rows that each keeps in reach.
        builder: makes the items.

    Attributes:
        blocks: the lanes, in as few blocks as pages have room for.
        spans: each block with its lanes.
        staged: see `Writer.staged`.
        extra_pages: how many pages the lanes may take beyond what the capacity needs (`Store.allow`).
    """

    def __init__(self, replay: ReplayCore, lanes: int, history: int, builder: ItemBuilder) -> None:
        self._replay = replay
        self._store = replay.store
        self._lock = replay.lock
        self._lanes = lanes
        self._builder = builder
        signature, columns = self._store.signature, self._store.columns
        self._specs = signature.columns
        self._finals = FinalColumns(signature)
        across = max((rule.reach for rule in builder.rules if rule.cut.end == CONTINUE), default=0)
        stages = _sizes_and_stages(self._store, lanes)
        self.blocks = [LaneBlock(self._store, size, history, across, stage) for size, stage in stages]
        self.spans = _spans(self.blocks)
        builder.note_blocks({block: span.start for block, span in self.spans})
        # Each block beside the first fills pages of its own, and may have ended in the middle of others.
        self.extra_pages = 2 * (len(self.blocks) - 1)
        self._store.allow(self.extra_pages)
        self._columns = list(columns.items())
        self._puts = {
            block: _put(columns, self._specs, block.lanes, stage)
            for block, (_, stage) in zip(self.blocks, stages, strict=True)
        }
        self._put = self._puts[self.blocks[0]]
        alone = [stage for _, stage in stages if stage is not None and len(stages) == 1]
        self.staged: Mapping[str, NDArray[Any]] = alone[0].arrays if alone else {}

    def release(self) -> list[int]:
        """Forget all pages; returns those that are to be given back. `extra_pages` are to be allowed no longer."""
        return [page for block in self.blocks for page in block.release()]

    # ---- steps -----------------------------------------------------------------------------------------------------

    def write(self, row: int, step: Any) -> None:
        """Write one step of every lane, for the only block, from `row` on or where it is staged; commit nothing."""
        # A dict of columns is taken for any signature: no key of a tree has the "/" of their names.
        if type(step) is dict and len(step) == len(self._specs):
            try:
                self._put(row, step)
                return
            except KeyError:
                pass  # `flatten` says what is missing.
        self._put(row, self._store.signature.flatten(step))

    def write_checked(self, row: int, values: Mapping[str, Any]) -> None:
        """Does the same as `write`, of columns that are known to fit; those of one lane have no axis of lanes."""
        if self._lanes > 1:
            self._put(row, values)
            return
        for name, column in self._columns:
            column[row] = values[name]

    def append_checked(self, values: Mapping[str, Any]) -> None:
        """One transition of every lane, in any number of blocks; `values` are known to fit."""
        for block in self.blocks:
            block.make_room()
        with self._lock:
            self._replay.check_open()
            self._store_blocks(self.spans, values)

    def append_ends(
        self,
        values: Mapping[str, Any],
        ends: Seam,
        finals: Mapping[str, NDArray[Any]],
        spans: Sequence[tuple[LaneBlock, slice]],
    ) -> None:
        """A step in which episodes end or lanes hold nothing: all of it is stored, or nothing.

        Args:
            values: of all lanes, known to fit.
            ends: of all lanes; `first` is not read.
            finals: column to array `[m, ...]`: what the final rows of the lanes `ended` hold beside zeros.
            spans: the blocks that take the step, with their lanes.
        """
        for block, _ in spans:
            block.make_room()
        ended, done = ends.ended, 0
        with self._lock:
            self._replay.check_open()
            if len(ended):
                self._require_finals(ended, 1)
            if len(self.blocks) == len(spans) == 1 and 0 < len(ended) < self._lanes:
                # Their final rows are written with the step, up to the space left in the page for these.
                block = self.blocks[0]
                first, room = block.make_room_for_finals()
                done = min(room, len(ended))
                self._fill_finals(first, done, finals, 0)
                ends = Seam(ends.final, ends.idle, ended[:done], first)
            elif len(ended):
                ends = Seam(ends.final, ends.idle, ended[:0], -1)
            self._store_blocks(spans, values, ends)
            if done < len(ended):
                self._end(ended[done:], {name: value[done:] for name, value in finals.items()})

    def _store_blocks(
        self,
        spans: Sequence[tuple[LaneBlock, slice]],
        values: Mapping[str, NDArray[Any]],
        ends: Seam | None = None,
    ) -> None:
        """Write a step block by block. Once one block is stored all are: a step that is sent again would double lanes.

        Args:
            spans: blocks with their lanes.
            values: of all lanes, known to fit.
            ends: of all lanes.
        """
        builder = self._builder
        for number, (block, lanes) in enumerate(spans):
            row = block.row
            try:
                self._fill(block, values, lanes)
                builder.commit(block, _of_lanes(ends, lanes))
            except BaseException as error:
                is_stored = block.row != row
                if number == 0 and not is_stored:
                    raise
                for other, its_lanes in spans[number + is_stored :]:
                    self._fill(other, values, its_lanes)
                    builder.commit_anyway(other, _of_lanes(ends, its_lanes))
                # Items that were without room are told as refused; Ctrl-C goes on.
                if is_stored or not isinstance(error, Exception):
                    raise
                return

    def checked(self, step: Any) -> dict[str, NDArray[Any]]:
        """The columns of a step of every lane, checked.

        Raises:
            SpecError: the step does not fit.
        """
        specs = self._specs
        if isinstance(step, dict) and step.keys() == specs.keys():
            return {name: check_array(step[name], spec, name, (self._lanes,)) for name, spec in specs.items()}
        return self._store.signature.validate(step, (self._lanes,))

    def _fill(self, block: LaneBlock, values: Mapping[str, NDArray[Any]], lanes: slice) -> None:
        """Write one step of a block, of values of all lanes that are known to fit, and commit nothing."""
        if self._lanes == 1:
            for name, column in self._columns:
                column[block.row] = values[name][0]
            return
        if block.lanes != self._lanes:
            values = {name: value[lanes] for name, value in values.items()}
        self._puts[block](block.row, values)

    # ---- ends of episodes ------------------------------------------------------------------------------------------

    def end_episode(self, final: Any, lane: int | None) -> None:
        """See `Writer.end_episode`."""
        lanes = np.arange(self._lanes) if lane is None else np.array([check_count("lane", lane, 0)])
        if lane is not None:
            self.block_of(lane)
        empty = [int(each) for each in lanes if not self._open_steps(int(each))]
        if empty:
            raise ValueError(
                f"end_episode: lanes {empty} have no step since their last episode ended; append one first"
            )
        leading = () if lane is not None or self._lanes == 1 else (self._lanes,)
        values = None if final is None else self._finals.read(final, leading)
        if values is not None and not leading:
            values = {name: value[None] for name, value in values.items()}
        self.end_lanes(lanes, values)

    def end_lanes(self, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]] | None) -> None:
        """See `Writer.end_lanes`."""
        if values is None:
            self.cut_lanes(lanes, None)
            return
        self._replay.note_given(values)
        with self._lock:
            self._replay.check_open()
            self._require_finals(lanes, 0)
            self._end(lanes, values)

    def _require_finals(self, lanes: NDArray[np.int64], ahead: int) -> None:
        needed: list[int] = []
        for block, inner, _ in self._by_block(lanes):
            needed += block.pages_for_finals(len(inner), ahead)
        self._store.require(needed)

    def _end(self, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]]) -> None:
        for block, inner, here in self._by_block(lanes):
            picked = {name: value[here] for name, value in values.items()}
            if len(inner) == block.lanes:
                self._end_inside(block, picked)
            else:
                self._end_beside(block, inner, picked)

    def _by_block(self, lanes: NDArray[np.int64]) -> Iterator[tuple[LaneBlock, NDArray[np.int64], Any]]:
        """The blocks of these lanes, with the lanes counted in the block, and which of `lanes` they are."""
        if len(self.blocks) == 1:
            if len(lanes):
                yield self.blocks[0], lanes, slice(None)
            return
        for block, span in self.spans:
            here = (lanes >= span.start) & (lanes < span.stop)
            if here.any():
                yield block, lanes[here] - span.start, here

    def _end_inside(self, block: LaneBlock, values: Mapping[str, NDArray[Any]]) -> None:
        """All lanes of a block end: their final rows are its next step."""
        block.make_room()
        self._fill_finals(block.row, block.lanes, values, 0)
        block.commit_final()
        self._builder.make_of_finals(block)

    def _end_beside(
        self, block: LaneBlock, lanes: NDArray[np.int64], values: Mapping[str, NDArray[Any]]
    ) -> None:
        """Final rows of some lanes of a block stand in a page of their own: a step of the block has one row a lane."""
        done = 0
        while done < len(lanes):
            first, room = block.make_room_for_finals()
            some = lanes[done : done + room]
            self._fill_finals(first, len(some), values, done)
            block.commit_finals(some, first)
            self._builder.make_last(block, block.last + some, some)
            done += len(some)

    def _fill_finals(self, row: int, count: int, values: Mapping[str, NDArray[Any]], start: int) -> None:
        rows = slice(row, row + count)
        for name, column in self._columns:
            given = values.get(name)
            column[rows] = 0 if given is None else given[start : start + count]

    def cut_lanes(self, lanes: NDArray[np.int64], end: EndOfEpisode | None) -> None:
        """The episodes of these lanes end without a final row.

        Args:
            end: what becomes of the rows that fill no window, in place of what the rules say.
        """
        with self._lock:
            self._replay.check_open()
            for block, inner, _ in self._by_block(lanes):
                rows = block.last + inner
                block.end_without_final(inner)
                self._builder.make_last(block, rows, inner, None if end is None else END_NUMBERS[end])

    def drop_lanes(self, lanes: NDArray[np.int64]) -> None:
        """The episodes of these lanes end, and nothing more is made of them."""
        with self._lock:
            self._replay.check_open()
            for block, inner, _ in self._by_block(lanes):
                block.drop(inner)

    def end_streams(self, lanes: NDArray[np.int64]) -> None:
        """Starts a new stream in these lanes: no window crosses this point."""
        with self._lock:
            self._replay.check_open()
            for block, inner, _ in self._by_block(lanes):
                self._builder.end_streams(block, inner)

    @property
    def open_lanes(self) -> NDArray[np.int64]:
        """Lanes with an episode under way."""
        return np.flatnonzero(np.concatenate([block.lane_steps for block in self.blocks]))

    def _open_steps(self, lane: int) -> int:
        block, inner = self.block_of(lane)
        return int(block.lane_steps[inner])

    def block_of(self, lane: int) -> tuple[LaneBlock, int]:
        """The block of a lane, and where the lane is in it.

        Raises:
            ValueError: no such lane.
        """
        inner = lane
        for block in self.blocks:
            if inner < block.lanes:
                return block, inner
            inner -= block.lanes
        raise ValueError(f"lane: expected 0 to {self._lanes - 1}, got {lane}")


def _sizes_and_stages(store: Store, lanes: int) -> list[tuple[int, Stage | None]]:
    """The lanes in as few blocks as pages have room for: the size of each, and where its steps wait if it has any."""
    most = store.arrays.page_rows
    sizes = [most] * (lanes // most) + ([lanes % most] if lanes % most else [])
    return [(size, None if lanes == 1 else Stage(store.signature, size)) for size in sizes]


def _spans(blocks: Sequence[LaneBlock]) -> list[tuple[LaneBlock, slice]]:
    """Each block with the writer's lanes that are in it."""
    stops = np.cumsum([block.lanes for block in blocks]).tolist()
    return [(block, slice(stop - block.lanes, stop)) for block, stop in zip(blocks, stops, strict=True)]


def _put(
    columns: Mapping[str, NDArray[Any]], specs: Mapping[str, ArraySpec], lanes: int, stage: Stage | None
) -> Callable[[int, Mapping[str, Any]], None]:
    """Returns the function that writes one step of every lane at a row."""
    if stage is not None:
        return LaneColumns(((name, columns[name], spec) for name, spec in specs.items()), lanes, stage).put
    return RowColumns(
        (name, columns[name], partial(check_array, spec=spec, path=name)) for name, spec in specs.items()
    ).put


def _of_lanes(ends: Seam | None, lanes: slice) -> Seam | None:
    """The part of `ends` of the lanes of a block; None where each of them holds a transition."""
    if ends is None:
        return None
    final, idle = ends.final[lanes], ends.idle[lanes]
    if not len(ends.ended) and not any_set(final) and not any_set(idle):
        return None
    return Seam(final, idle, ends.ended, ends.first)


def any_set(mask: NDArray[np.bool_]) -> bool:
    """Whether some element is True; takes a tenth of the time of `mask.any()` for some hundred elements."""
    return 1 in mask.tobytes()
