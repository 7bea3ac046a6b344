"""The rows of a writer: steps of its lanes, final rows, and which items they complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headrace.checks import check_count
from headrace.ends import EndOfEpisode
from headrace.replay.final_columns import FinalColumns
from headrace.replay.item_maker import ItemMaker
from headrace.spec import ArraySpec, check_array
from headrace.store.block import LaneBlock, Seam
from headrace.store.columns import LaneColumns, RowColumns
from headrace.store.staging import Stage
from headrace.store.store import Store
from headrace.tables.description.cut import CONTINUE, END_NUMBERS

if TYPE_CHECKING:
    from headrace.replay.replay import ReplayCore


class LaneRows:
    """Writes rows and commits them. What does not fit, or finds no room, leaves everything as it was.

    Args:
        replay: whose store.
        lanes: how many.
        history: rows that each keeps in reach.
        items: makes the items.

    Attributes:
        blocks: the lanes, in as few blocks as pages have room for.
        staged: see `Writer.staged`.
        extra_pages: how many pages the lanes may take beyond what the capacity needs (`Store.allow`).
    """

    def __init__(self, replay: ReplayCore, lanes: int, history: int, items: ItemMaker) -> None:
        self._replay = replay
        self._store = replay.store
        self._lock = replay.lock
        self._lanes = lanes
        self._items = items
        signature, columns = self._store.signature, self._store.columns
        self._specs = signature.columns
        self._finals = FinalColumns(signature)
        across = max((rule.reach for rule in items.rules if rule.cut.end == CONTINUE), default=0)
        stages = _sizes_and_stages(self._store, lanes)
        self.blocks = [LaneBlock(self._store, size, history, across, stage) for size, stage in stages]
        self._spans = _spans(self.blocks)
        items.note_blocks({block: span.start for block, span in self._spans})
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

    def append(self, step: Any) -> None:
        """One transition of every lane, in any number of blocks."""
        self.append_checked(self._checked(step))

    def append_checked(self, values: Mapping[str, Any]) -> None:
        """Does the same as `append`, of columns that are known to fit."""
        for block in self.blocks:
            block.make_room()
        items = self._items
        with self._lock:
            self._replay.check_open()
            self._store_blocks(
                self._spans,
                values,
                lambda block, _: items.commit_and_make(block),
                lambda block, _: items.commit_then_make(block),
            )

    def append_marked(
        self, step: Any, final: NDArray[np.bool_], idle: NDArray[np.bool_], given: Sequence[str]
    ) -> None:
        """See `Writer.append_marked`."""
        values = _cleared(self._checked(step), final, given)
        for block in self.blocks:
            block.make_room()

        def commit(block: LaneBlock, lanes: slice) -> None:
            block.commit_marked(final[lanes], idle[lanes])
            self._items.make_marked(block, has_finals=bool(final[lanes].any()))

        with self._lock:
            self._replay.check_open()
            self._store_blocks(self._spans, values, commit, commit)

    def append_seam(
        self,
        step: Mapping[str, Any],
        idle: NDArray[np.bool_],
        ended: NDArray[np.int64],
        finals: Mapping[str, NDArray[Any]],
    ) -> None:
        """See `Writer.append_seam`."""
        if len(self.blocks) > 1:
            self._append_seam_to_blocks(step, idle, ended, finals)
            return
        block, waiting, done = self.blocks[0], np.count_nonzero(idle), 0
        if waiting < block.lanes:
            block.make_room()
        with self._lock:
            if self._replay.is_closed:
                self._replay.check_open()
            if len(ended):
                self._require_finals(ended, 1)
            if waiting < block.lanes:
                self._fill(block, step, slice(0, block.lanes))
                if 0 < len(ended) < block.lanes:
                    first, room = block.make_room_for_finals()
                    done = min(room, len(ended))
                    self._fill_finals(first, done, finals, 0)
                    self._items.commit_and_make_seam(block, Seam(idle, ended[:done], first))
                elif waiting:
                    self._items.commit_and_make_seam(block, block.no_seam._replace(idle=idle))
                else:
                    self._items.commit_and_make(block)
            if done < len(ended):
                self._end(ended[done:], {name: value[done:] for name, value in finals.items()})

    def _append_seam_to_blocks(
        self,
        step: Mapping[str, Any],
        idle: NDArray[np.bool_],
        ended: NDArray[np.int64],
        finals: Mapping[str, NDArray[Any]],
    ) -> None:
        items = self._items

        def commit(block: LaneBlock, lanes: slice) -> None:
            if np.count_nonzero(idle[lanes]):
                items.commit_and_make_seam(block, block.no_seam._replace(idle=idle[lanes]))
            else:
                items.commit_and_make(block)

        def commit_rest(block: LaneBlock, lanes: slice) -> None:
            block.commit_idle(idle[lanes])
            items.make_marked(block, has_finals=False)

        written = [(block, lanes) for block, lanes in self._spans if not idle[lanes].all()]
        for block, _ in written:
            block.make_room()
        with self._lock:
            self._replay.check_open()
            self._require_finals(ended, 1)
            self._store_blocks(written, step, commit, commit_rest)
            if len(ended):
                self._end(ended, finals)

    def _store_blocks(
        self,
        blocks: Sequence[tuple[LaneBlock, slice]],
        values: Mapping[str, NDArray[Any]],
        commit: Callable[[LaneBlock, slice], None],
        commit_rest: Callable[[LaneBlock, slice], None],
    ) -> None:
        """Write a step block by block. Once one block is stored all are: a step that is sent again would double lanes.

        Args:
            blocks: with their lanes.
            values: of all lanes, known to fit.
            commit: takes in the step of a block and makes its items; raises if there is no room for these.
            commit_rest: as `commit`, after an error; items for which there is no room are refused (`raise_refused`).
        """
        for number, (block, lanes) in enumerate(blocks):
            row = block.row
            try:
                self._fill(block, values, lanes)
                commit(block, lanes)
            except BaseException as error:
                is_stored = block.row != row
                if number == 0 and not is_stored:
                    raise
                for other, its_lanes in blocks[number + is_stored :]:
                    self._fill(other, values, its_lanes)
                    commit_rest(other, its_lanes)
                # Items that were without room are told as refused; Ctrl-C goes on.
                if is_stored or not isinstance(error, Exception):
                    raise
                return

    def _checked(self, step: Any) -> dict[str, NDArray[Any]]:
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
        for block, span in self._spans:
            here = (lanes >= span.start) & (lanes < span.stop)
            if here.any():
                yield block, lanes[here] - span.start, here

    def _end_inside(self, block: LaneBlock, values: Mapping[str, NDArray[Any]]) -> None:
        """All lanes of a block end: their final rows are its next step."""
        block.make_room()
        self._fill_finals(block.row, block.lanes, values, 0)
        block.commit_final()
        self._items.make_marked(block, has_finals=True)

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
            self._items.make_last(block, block.last + some, some)
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
                self._end_without_finals(block, inner)
                self._items.make_last(block, rows, inner, None if end is None else END_NUMBERS[end])

    def drop_lanes(self, lanes: NDArray[np.int64]) -> None:
        """The episodes of these lanes end, and nothing more is made of them."""
        with self._lock:
            self._replay.check_open()
            for block, inner, _ in self._by_block(lanes):
                for lane in inner.tolist():
                    block.drop(lane)

    def end_streams(self, lanes: NDArray[np.int64]) -> None:
        """Starts a new stream in these lanes: no window crosses this point."""
        with self._lock:
            self._replay.check_open()
            for block, inner, _ in self._by_block(lanes):
                self._items.end_streams(block, inner)

    @property
    def open_lanes(self) -> NDArray[np.int64]:
        """Lanes with an episode under way."""
        return np.flatnonzero(np.concatenate([block.lane_steps for block in self.blocks]))

    @staticmethod
    def _end_without_finals(block: LaneBlock, lanes: NDArray[np.int64]) -> None:
        for lane in lanes.tolist():
            block.end_without_final(lane)

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
    """What writes one step of every lane at a row."""
    if stage is not None:
        return LaneColumns(((name, columns[name], spec) for name, spec in specs.items()), lanes, stage).put
    return RowColumns(
        (name, columns[name], partial(check_array, spec=spec, path=name)) for name, spec in specs.items()
    ).put


def _cleared(
    values: Mapping[str, NDArray[Any]], final: NDArray[np.bool_], given: Sequence[str]
) -> Mapping[str, NDArray[Any]]:
    """Values of lanes, of which those that are final have zeros in all columns but those given."""
    if not final.any():
        return values
    cleared = {name: value.copy() for name, value in values.items() if name not in given}
    for value in cleared.values():
        value[final] = 0
    return {**values, **cleared}
