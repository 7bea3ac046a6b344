"""Steps that stand in leased pages become the same rows and items as those that a writer appends one by one."""

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_steps import append_marked

import headrace as hr
from headrace.ends import EndOfEpisode
from headrace.replay.intake.intake import Intake
from headrace.replay.intake.selection import Selection
from headrace.replay.public import core_of
from headrace.spec import ArraySpec, Signature
from headrace.store.block import WrittenSteps
from headrace.store.layout import EMPTY, FINAL, LANES, LINKED, REFERENCES, USED
from headrace.tables.description.rules import PatternWindow, Rule, WholeEpisodes
from headrace.tables.pending import Pending

SIGNATURE = Signature({"number": ArraySpec((), np.int64), "observation": ArraySpec((3,), np.int64)})
COLUMNS = tuple(SIGNATURE.columns)


class Step(NamedTuple):
    """One vector step: which lanes hold their final row, hold nothing, or end with a final row beside the lane."""

    version: int
    final: list[int]
    idle: list[int]
    ended: list[int]
    # After it: the lanes whose open episodes end.
    cut: list[int]


@st.composite
def rules(draw: st.DrawFn, table: str) -> Rule:
    length = draw(st.integers(1, 5))
    if draw(st.integers(0, 4)) == 0:
        return PatternWindow(table, length, draw(st.integers(0, 2)))
    end = draw(st.sampled_from([*EndOfEpisode, None]))
    if end is None:
        return WholeEpisodes(table, length)
    most = length if end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE) else 6
    lookahead = 0 if end is EndOfEpisode.CONTINUE else draw(st.sampled_from([0, 0, 1, 3]))
    return hr.ItemRule(table, length, draw(st.integers(1, most)), end, lookahead=lookahead)


@st.composite
def histories(draw: st.DrawFn, lanes: int) -> list[Step]:
    steps, is_open = [], [False] * lanes
    for _ in range(draw(st.integers(1, 14))):
        kinds = [
            draw(st.sampled_from("ttttteef" if is_open[lane] else "tttteii"))
            if lanes > 1
            else draw(st.sampled_from("ttttf" if is_open[lane] else "ttti"))
            for lane in range(lanes)
        ]
        is_open = [kind == "t" for kind in kinds]
        cut = []
        if lanes > 1 and draw(st.integers(0, 4)) == 0:
            cut = [lane for lane in range(lanes) if is_open[lane] and draw(st.booleans())]
        for lane in cut:
            is_open[lane] = False
        which = {kind: [lane for lane in range(lanes) if kinds[lane] == kind] for kind in "fie"}
        steps.append(Step(draw(st.integers(0, 3)), which["f"], which["i"], which["e"], cut))
    return steps


class Selections:
    """Which rows end windows of the rules `PatternWindow`: any of those that have enough rows before them.

    Attributes:
        steps, ends, cuts: of each step the windows that it ends by itself, that final rows beside its lanes end, and
            that lanes end which are cut after it.
    """

    def __init__(self, written_by: list[Rule], history: list[Step], lanes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.steps: list[Selection] = []
        self.ends: list[Selection] = []
        self.cuts: list[Selection] = []
        reaches = {n: rule.reach for n, rule in enumerate(written_by) if isinstance(rule, PatternWindow)}
        counts = np.zeros(lanes, np.int64)
        for step in history:
            counts[step.idle] = 0
            counts += ~np.isin(np.arange(lanes), step.idle)
            found = []
            for rows, held in (("lanes", 0), ("ended", 1), ("cut", 1)):
                which = np.isin(np.arange(lanes), np.setdiff1d(np.arange(lanes), step.idle))
                if rows != "lanes":
                    which = np.isin(np.arange(lanes), getattr(step, rows))
                masks = {
                    n: which & (counts + held >= reach) & (rng.random(lanes) < 0.6)
                    for n, reach in reaches.items()
                }
                found.append(masks)
            in_lanes, ended, cut = found
            final = np.isin(np.arange(lanes), step.final)
            none = np.zeros(lanes, np.bool_)
            self.steps.append(
                Selection(
                    {n: mask & ~final for n, mask in in_lanes.items()},
                    {n: mask & final for n, mask in in_lanes.items()},
                )
            )
            self.ends.append(Selection(dict.fromkeys(reaches, none), ended))
            self.cuts.append(Selection(dict.fromkeys(reaches, none), cut))
            for ends in (step.final, step.ended, step.cut):
                counts[ends] = 0

    def of_block(self, first: int, stop: int) -> Selection:
        """The same of some steps in one call: masks bool[steps, lanes]."""
        rows, finals = {}, {}
        for n in self.steps[0].rows:
            rows[n] = np.stack([each.rows[n] for each in self.steps[first:stop]])
            finals[n] = np.stack(
                [self.steps[index].finals[n] | self.ends[index].finals[n] for index in range(first, stop)]
            )
        return Selection(rows, finals)


class Side:
    """A replay that the history is written to; `facts` tells what became of its rows."""

    def __init__(self, written_by: list[Rule], page_rows: int, lanes: int) -> None:
        fifo = hr.selectors.Fifo()
        tables = [
            hr.Table(rule.table, sampler=fifo, remover=fifo, max_size=1000, max_times_sampled=1)
            for rule in written_by
        ]
        self.replay = hr.Replay(SIGNATURE, tables, capacity=32 * page_rows)
        self.core = core_of(self.replay)
        self.store, self.lanes = self.core.store, lanes
        self.store.allow(60)
        self.arrays = self.store.arrays
        self.facts: list[object] = []

    def note(self, row: int, is_beside: bool = False) -> None:
        """What is told of a committed row and of the final row beside it."""
        word, page = int(self.arrays.steps[row]), row // self.arrays.page_rows
        numbers = self.store.columns["number"]
        in_page = row - page * self.arrays.page_rows
        step = page * self.arrays.page_rows + in_page // int(self.arrays.pages[page, LANES])
        values = [int(numbers[row]), self.store.columns["observation"][row].tolist()]
        self.facts.append((word, values, int(self.store.versions[step])))
        if not word & EMPTY:
            self.facts.append(self.store.window.episode_id(row))
        if word & LINKED:
            final = int(self.arrays.links[row]) - 1
            assert int(self.arrays.links[final]) - 1 == row
            assert self.arrays.pages[final // self.arrays.page_rows, USED] > final % self.arrays.page_rows
            self.note(final, is_beside=True)
        elif word & FINAL and not is_beside:
            assert self.arrays.links[row] == 0

    def references(self) -> dict[int, tuple[int, ...]]:
        """By the first number in a page that items hold: its references, and how far it is used."""
        words, found = self.arrays.pages, {}
        for page in np.flatnonzero(words[:, REFERENCES] > 0).tolist():
            first = page * self.arrays.page_rows
            rows = slice(first, first + int(words[page, USED] * words[page, LANES]))
            numbers = self.store.columns["number"][rows]
            found[int(numbers[numbers > 0].min())] = tuple(words[page, [LANES, USED, REFERENCES]].tolist())
        return found

    def items(self, table: str) -> list[tuple[list[int], int]]:
        taken = []
        while len(self.replay.table(table)):
            batch = self.replay.sample(table, 1, timeout=0)
            numbers = np.atleast_1d(batch.data["number"][0])
            real = numbers if batch.mask is None else numbers[batch.mask[0]]
            taken.append((real.tolist(), len(numbers) - len(real)))
        return taken


def values_of(numbers: np.ndarray) -> dict[str, np.ndarray]:
    return {"number": numbers, "observation": numbers[:, None] * [1, 10, 100]}


def numbers_of(number: int, count: int) -> np.ndarray:
    return np.arange(number + 1, number + 1 + count)


def masks(step: Step, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    final, idle = np.zeros(lanes, np.bool_), np.zeros(lanes, np.bool_)
    final[step.final] = idle[step.idle] = True
    return final, idle


def write_one_by_one(side: Side, written_by: list[Rule], history: list[Step], selection: Selections) -> None:
    """The ordinary writer; final rows of some of its lanes at a time, which stand beside them."""
    lanes, number = side.lanes, 0
    writer = side.replay.writer(lanes, items=written_by)
    rows = writer._rows
    for index, step in enumerate(history):
        values = values_of(numbers_of(number, lanes))
        number += lanes
        for lane in step.idle:
            values["number"][lane] = values["observation"][lane] = 0
        writer.policy_version = step.version
        rows.select_windows(selection.steps[index])
        append_marked(writer, values, *masks(step, lanes), COLUMNS)
        newest = rows._lanes.blocks[0].newest_rows.tolist()
        for ends, chosen in ((step.ended, selection.ends[index]), (step.cut, selection.cuts[index])):
            halves = (ends[:1], ends[1:]) if len(ends) == lanes else (ends,)
            for some in filter(None, halves):
                rows.select_windows(chosen)
                rows.end_lanes(np.array(some), values_of(numbers_of(number, len(some))))
                number += len(some)
        for row in newest:
            side.note(row)
    writer.close()


class Peer:
    """Writes columns into pages that it leases, as another process would, and has them committed by blocks."""

    def __init__(self, side: Side, written_by: list[Rule], selection: Selections) -> None:
        self.selection, self.done = selection, 0
        self.side, self.store, self.lanes = side, side.store, side.lanes
        self.page_rows = side.arrays.page_rows
        history = max(rule.reach for rule in written_by)
        self.intake = Intake(side.core, self.lanes, written_by, history, Pending(side.core.lock))
        (self.block,) = self.intake.lanes.blocks
        side.core.declarations.declare_final_columns(COLUMNS)
        self.ahead = [self.block.lease_page()]
        self.page, self.used = -1, 0
        self.final_page, self.final_used = -1, self.page_rows
        self.full_pages: list[int] = []
        self.number = 0
        self.turn()

    def turn(self) -> None:
        self.page, self.used, self.begun = self.ahead.pop(0), 0, 0
        self.ahead.append(self.block.lease_page())
        self.begin()

    def begin(self) -> None:
        self.begun = self.used
        self.steps: list[Step] = []
        self.final_rows: list[int] = []

    def write(self, row: int, count: int) -> None:
        for name, values in values_of(numbers_of(self.number, count)).items():
            self.store.columns[name][row : row + count] = values
        self.number += count

    def write_final(self) -> int:
        if self.final_used == self.page_rows:
            if self.final_page >= 0:
                # Its rows are held by the pages that lead to them, once they are committed.
                self.full_pages.append(self.final_page)
            self.final_page, self.final_used = self.store.acquire(1), 0
        row = self.final_page * self.page_rows + self.final_used
        self.final_used += 1
        self.write(row, 1)
        return row

    def take(self, step: Step) -> None:
        if self.used == self.page_rows // self.lanes:
            self.turn()
        self.write(self.page * self.page_rows + self.used * self.lanes, self.lanes)
        self.final_rows += [self.write_final() for _ in step.ended]
        self.steps.append(step)
        self.used += 1

    def commit(self) -> None:
        flags = {"final": [], "idle": [], "ended": []}
        for name, rows in flags.items():
            for index, step in enumerate(self.steps):
                rows += [index * self.lanes + lane for lane in getattr(step, name)]
        arrays = {name: np.array(rows, np.int64) for name, rows in flags.items()}
        versions = np.array([step.version for step in self.steps], np.int32)
        finals = np.array(self.final_rows, np.int64)
        written = WrittenSteps(self.page, len(self.steps), **arrays, final_rows=finals, versions=versions)
        self.intake.select(self.selection.of_block(self.done, self.done + len(self.steps)))
        self.done += len(self.steps)
        self.intake.commit_written(written)
        self.is_content()
        first = self.page * self.page_rows + self.begun * self.lanes
        self.rows = [first + place for place in range(len(self.steps) * self.lanes)]
        self.begin()

    def end(self, lanes: list[int]) -> None:
        rows = np.array([self.write_final() for _ in lanes], np.int64)
        self.intake.select(self.selection.cuts[self.done - 1])
        self.intake.end_written(np.array(lanes, np.int64), rows)
        self.is_content()

    def is_content(self) -> None:
        self.intake.finish_call()
        while self.full_pages:
            self.store.release(self.full_pages.pop())

    def close(self) -> None:
        for page in (*self.block.release(), *([self.final_page] if self.final_page >= 0 else [])):
            self.store.release(page)


def write_by_blocks(
    side: Side,
    written_by: list[Rule],
    history: list[Step],
    selection: Selections,
    data: st.DataObject,
    leaves: bool,
) -> None:
    peer = Peer(side, written_by, selection)
    for step in history:
        peer.take(step)
        is_full = peer.used == peer.page_rows // peer.lanes
        if step.cut or is_full or data.draw(st.booleans()):
            peer.commit()
            if step.cut:
                peer.end(step.cut)
            for row in peer.rows:
                side.note(row)
            if leaves and data.draw(st.booleans()):
                peer.turn()
    if peer.steps:
        peer.commit()
        for row in peer.rows:
            side.note(row)
    peer.close()


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 4), st.integers(4, 13), st.integers(1, 2), st.booleans(), st.data())
def test_blocks_of_steps_become_what_single_steps_become(
    lanes: int, page_rows: int, tables: int, leaves: bool, data: st.DataObject
):
    """Trajectories W1 to W6, A10: words, versions, links, episodes, windows, their order, and what they hold."""
    written_by = [data.draw(rules(f"t{number}")) for number in range(tables)]
    history = data.draw(histories(lanes))
    one, other = (Side(written_by, page_rows, lanes) for _ in range(2))
    selection = Selections(written_by, history, lanes, data.draw(st.integers(0, 2**32)))
    write_one_by_one(one, written_by, history, selection)
    write_by_blocks(other, written_by, history, selection, data, leaves)
    assert one.facts == other.facts
    if not leaves:
        assert one.references() == other.references()
    for rule in written_by:
        assert one.items(rule.table) == other.items(rule.table)
    for side in (one, other):
        assert side.replay.statistics().store.pages == 0
        side.replay.close()
