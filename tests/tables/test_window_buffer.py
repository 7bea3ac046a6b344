"""Rules make the windows of the closed form of rows, each once, each at its time (trajectories W1 to W6)."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from marked_steps import append_marked
from plain_kernels import fewer

import headrace as hr
from headrace.ends import EndOfEpisode
from headrace.replay.public import core_of
from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.layout import STEP_MASK
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.description.window_rule import WindowRule
from headrace.tables.items.layout import DROP
from headrace.tables.windows.buffer import WindowBuffer, Windows
from headrace.trajectories.windows import windows

SIGNATURE = Signature({"number": ArraySpec((), np.int64), "observation": ArraySpec((), np.int64)})
ENDS = [end for end in EndOfEpisode if end is not EndOfEpisode.CONTINUE]


@st.composite
def rules(draw: st.DrawFn) -> hr.ItemRule:
    length = draw(st.integers(1, 5))
    end = draw(st.sampled_from(ENDS))
    most = length if end in (EndOfEpisode.PAD, EndOfEpisode.TRUNCATE) else 6
    return hr.ItemRule(
        "t",
        length,
        stride=draw(st.integers(1, most)),
        end=end,
        lookahead=draw(st.sampled_from([0, 0, 1, 2, 4])),
    )


@dataclass
class Run:
    """One lane's episode: the numbers of its rows, and how many of its windows were made."""

    numbers: list[int] = field(default_factory=list)
    made: int = 0
    has_final: bool = False

    def due(self, rule: hr.ItemRule, over: bool) -> list[tuple[list[int], int]]:
        """The windows that are to be made now: real rows and the number of padded ones."""
        rows = len(self.numbers) - (1 if self.has_final and rule.length == 1 else 0)
        if over:
            whole = windows(rows, rule.length, rule.stride, rule.end)
        else:
            # Regular windows whose further rows are there too.
            whole = [
                window
                for window in windows(rows, rule.length, rule.stride)
                if window[0] + rule.length + rule.lookahead <= len(self.numbers)
            ]
        fresh, self.made = whole[self.made :], len(whole)
        return [(self.numbers[start : start + real], padding) for start, real, padding in fresh]


def take_all(replay: hr.Replay) -> list[tuple[list[int], int]]:
    taken = []
    while len(replay.table("t")):
        batch = replay.sample("t", 1, timeout=0)
        numbers = np.atleast_1d(batch.data["number"][0])
        real = numbers if batch.mask is None else numbers[batch.mask[0]]
        assert (numbers[len(real) :] == 0).all()
        taken.append((real.tolist(), len(numbers) - len(real)))
    return taken


def queue(rule: hr.ItemRule, capacity: int) -> hr.Replay:
    table = hr.Table(
        "t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=1000, max_times_sampled=1
    )
    return hr.Replay(SIGNATURE, [table], capacity=capacity, seed=0)


CAPACITIES = st.sampled_from([32 * rows for rows in (1, 2, 3, 5, 16)])


@settings(max_examples=fewer(60))
@given(rules(), CAPACITIES, st.data())
def test_one_lane_makes_the_windows_of_the_closed_form(rule: hr.ItemRule, capacity: int, data: st.DataObject):
    """W5, W6: regular windows at the append of their last row and lookahead, the others when the run ends."""
    replay = queue(rule, capacity)
    writer = replay.writer(items=[rule])
    run, number = Run(), 0
    for _ in range(data.draw(st.integers(1, 5))):
        for _ in range(data.draw(st.integers(1, 9))):
            number += 1
            writer.append({"number": number, "observation": number})
            run.numbers.append(number)
            assert take_all(replay) == run.due(rule, over=False)
        if data.draw(st.booleans()):
            number += 1
            writer.end_episode({"number": number, "observation": number})
            run.numbers.append(number)
            run.has_final = True
        else:
            writer.end_episode()
        assert take_all(replay) == run.due(rule, over=True)
        run = Run()
    writer.close()
    # Nothing that the items held stays behind.
    assert replay.statistics().store.pages == 0
    replay.close()


@settings(max_examples=fewer(60))
@given(rules(), CAPACITIES, st.integers(2, 4), st.data())
def test_several_lanes_make_the_windows_of_the_closed_form(
    rule: hr.ItemRule, capacity: int, lanes: int, data: st.DataObject
):
    """W5, W6 for each lane by itself, with final rows beside the lanes and ends without one."""
    replay = queue(rule, capacity)
    writer = replay.writer(lanes, items=[rule])
    runs, number = [Run() for _ in range(lanes)], 0
    for _ in range(data.draw(st.integers(1, 16))):
        numbers = np.arange(number + 1, number + 1 + lanes)
        number += lanes
        writer.append({"number": numbers, "observation": numbers})
        due = []
        for lane, run in enumerate(runs):
            run.numbers.append(int(numbers[lane]))
            due += run.due(rule, over=False)
        assert take_all(replay) == due
        for lane in sorted(data.draw(st.sets(st.integers(0, lanes - 1), max_size=2))):
            if data.draw(st.booleans()):
                number += 1
                writer.end_episode({"number": number, "observation": number}, lane=lane)
                runs[lane].numbers.append(number)
                runs[lane].has_final = True
            else:
                writer.end_episode(lane=lane)
            assert take_all(replay) == runs[lane].due(rule, over=True)
            runs[lane] = Run()
    writer.close()
    assert replay.statistics().store.pages == 0
    replay.close()


@settings(max_examples=fewer(40))
@given(rules(), CAPACITIES, st.integers(1, 4), st.data())
def test_marked_steps_make_the_windows_of_the_closed_form(
    rule: hr.ItemRule, capacity: int, lanes: int, data: st.DataObject
):
    """W5, W6 where final rows stand in the lanes and lanes wait (NEXT_STEP environments)."""
    replay = queue(rule, capacity)
    writer = replay.writer(lanes, items=[rule])
    runs, number = [Run() for _ in range(lanes)], 0
    ended: set[int] = set()
    every_lane = st.sets(st.integers(0, lanes - 1))
    for _ in range(data.draw(st.integers(1, 16))):
        idle = data.draw(every_lane) & ended
        final = data.draw(every_lane) & {lane for lane in range(lanes) if runs[lane].numbers}
        numbers = np.arange(number + 1, number + 1 + lanes)
        number += lanes
        marks = np.zeros((2, lanes), bool)
        marks[0, list(final)] = True
        marks[1, list(idle)] = True
        step = {"number": numbers, "observation": numbers}
        append_marked(writer, step, marks[0], marks[1], ("number", "observation"))
        due = []
        for lane in range(lanes):
            if lane in idle:
                continue
            runs[lane].numbers.append(int(numbers[lane]))
            runs[lane].has_final = lane in final
            due += runs[lane].due(rule, over=lane in final)
            if lane in final:
                runs[lane] = Run()
        ended = idle | final
        assert take_all(replay) == due
    writer.close()
    assert replay.statistics().store.pages == 0
    replay.close()


# ---- the kernels by themselves: many steps in one call ---------------------------------------------------------------


def buffer_of(store: Store, rule: hr.ItemRule) -> WindowBuffer:
    return WindowBuffer(store.pins, rule.window_rule, rule.priorities)


def each_with_its_shape(found: Windows) -> Windows:
    return found._replace(shapes=np.broadcast_to(found.shapes, (len(found.rows), 3)))


def numbers_of(store: Store, found: Windows) -> list[tuple[list[int], int]]:
    """The windows: numbers of the real rows, and how many are padded."""
    found = each_with_its_shape(found)
    longest = max(1, int(found.shapes[:, 0].max(initial=0)))
    rows = np.empty((len(found.rows), longest), np.int64)
    store.window.rows_of_windows(found.rows, np.ascontiguousarray(found.shapes[:, 0]), rows)
    numbers = np.where(rows >= 0, store.columns["number"][rows], -1)
    return [
        (numbers[each][rows[each] >= 0].tolist(), int(found.shapes[each, 1]))
        for each in range(len(found.rows))
    ]


@settings(max_examples=fewer(40))
@given(
    rules(),
    st.integers(1, 3),
    st.integers(3, 24),
    st.lists(st.integers(1, 7), min_size=1, max_size=6),
    st.data(),
)
def test_cut_block_takes_many_steps_at_once(
    rule: hr.ItemRule, lanes: int, page_rows: int, lengths: list[int], data: st.DataObject
):
    """A page of committed steps, cut in any number of calls, gives the same windows as step by step."""
    store = Store(SIGNATURE, 2048, make_arena=Arena.private, page_rows=page_rows)
    block = LaneBlock(store, lanes, 100)
    finals_beside = lanes > 1
    runs: list[list[Run]] = [[Run()] for _ in range(lanes)]
    left = np.array([lengths[lane % len(lengths)] for lane in range(lanes)])
    turn, number, waiting = lanes, 0, 0
    made: list[list[tuple[list[int], int]]] = [[] for _ in range(lanes)]
    lane_of: dict[int, int] = {}
    buffer, all_found = buffer_of(store, rule), []

    def cut_waiting() -> None:
        nonlocal waiting
        found = buffer.find_in_steps(block.last // page_rows, waiting)
        for window in numbers_of(store, found):
            made[lane_of[window[0][0]]].append(window)
        all_found.append(found)
        waiting = 0

    for _ in range(data.draw(st.integers(1, 24))):
        if waiting and (data.draw(st.booleans()) or block.last // page_rows != block.row // page_rows):
            cut_waiting()
        block.make_room()
        numbers = np.arange(number, number + lanes)
        number += lanes
        lane_of.update(zip(numbers.tolist(), range(lanes), strict=True))
        store.columns["number"][block.row : block.row + lanes] = numbers
        inline_end = not finals_beside and left[0] == 0
        if inline_end:
            block.commit_final()
        else:
            block.commit()
        waiting += 1
        for lane in range(lanes):
            runs[lane][-1].numbers.append(int(numbers[lane]))
        left -= 1
        over = [0] if inline_end else [lane for lane in range(lanes) if left[lane] == 0 and finals_beside]
        for lane in over:
            if not inline_end:
                first, _ = block.make_room_for_finals()
                store.columns["number"][first] = number
                lane_of[number] = lane
                block.commit_finals(np.array([lane]), first)
                runs[lane][-1].numbers.append(number)
                number += 1
            runs[lane][-1].has_final = True
            runs[lane].append(Run())
            left[lane] = lengths[turn % len(lengths)]
            turn += 1
        if block.row % page_rows + lanes > page_rows or block.row // page_rows != block.last // page_rows:
            cut_waiting()  # The page is full.
    if waiting:
        cut_waiting()
    for lane in range(lanes):
        wanted = [window for run in runs[lane] for window in run.due(rule, over=run.has_final)]
        assert made[lane] == wanted
    # Each window gives back as many references as it took: what is left is the writer's own.
    for found in map(each_with_its_shape, all_found):
        for row, shape in zip(found.rows.tolist(), found.shapes.tolist(), strict=True):
            store.pins.pin_rows(row, shape[0], shape[2], -1)
    for page in block.release():
        store.release(page)
    assert store.statistics().pages == 0


@settings(max_examples=fewer(40))
@given(rules(), st.integers(2, 4), st.lists(st.integers(1, 7), min_size=1, max_size=5), st.booleans())
def test_cut_finals_completes_what_the_ends_leave(
    rule: hr.ItemRule, lanes: int, lengths: list[int], with_finals: bool
):
    """Ends of all lanes in one call, with final rows beside the lanes and without."""
    store = Store(SIGNATURE, 2048, make_arena=Arena.private, page_rows=2 * lanes)
    block = LaneBlock(store, lanes, 100)
    number = 0
    for length in lengths:
        runs = [Run() for _ in range(lanes)]
        for _ in range(length):
            block.make_room()
            store.columns["number"][block.row : block.row + lanes] = np.arange(number, number + lanes)
            block.commit()
            for lane in range(lanes):
                runs[lane].numbers.append(number + lane)
                runs[lane].due(rule, over=False)
            number += lanes
        rows, every = block.last + np.arange(lanes), np.arange(lanes)
        done = 0
        while with_finals and done < lanes:
            first, room = block.make_room_for_finals()
            some = every[done : done + room]
            store.columns["number"][first : first + len(some)] = np.arange(number, number + len(some))
            block.commit_finals(some, first)
            for lane in some:
                runs[lane].numbers.append(number)
                runs[lane].has_final = True
                number += 1
            done += len(some)
        if not with_finals:
            for lane in every:
                block.end_without_final(int(lane))
        found = numbers_of(store, buffer_of(store, rule).find_at_ends(rows))
        assert found == [window for run in runs for window in run.due(rule, over=True)]


# ---- single cases ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (
            hr.ItemRule("t", 4, stride=2, end=EndOfEpisode.TILE),
            [([1, 2, 3, 4], 0), ([3, 4, 5, 6], 0), ([5, 6], 2)],
        ),
        (hr.ItemRule("t", 4, stride=3, end=EndOfEpisode.LAST), [([1, 2, 3, 4], 0), ([3, 4, 5, 6], 0)]),
        (hr.ItemRule("t", 5, stride=2, end=EndOfEpisode.TRUNCATE), [([1, 2, 3, 4, 5], 0), ([3, 4, 5, 6], 0)]),
        (hr.ItemRule("t", 3, stride=2, end=EndOfEpisode.PAD), [([1, 2, 3], 0), ([3, 4, 5], 0), ([5, 6], 1)]),
    ],
)
def test_worked_examples(rule: hr.ItemRule, wanted: list[tuple[list[int], int]]):
    """The examples of trajectories, part 1, with six rows: five transitions and a final row."""
    replay = queue(rule, 64)
    with replay.writer(items=[rule]) as writer:
        for number in range(1, 6):
            writer.append({"number": number, "observation": 0})
        writer.end_episode({"number": 6})
        assert take_all(replay) == wanted
    replay.close()


def test_last_window_of_one_row_gives_back_what_it_holds():
    """Replay I8: LAST with length 1 holds its own row, not the final row on the next page too."""
    rule = hr.ItemRule("t", 1, stride=2, end=EndOfEpisode.LAST)
    replay = queue(rule, 64)  # Two rows a page.
    with replay.writer(items=[rule]) as writer:
        for number in range(1, 5):
            writer.append({"number": number, "observation": 0})
        writer.end_episode({"observation": 5})
    assert take_all(replay) == [([1], 0), ([3], 0), ([4], 0)]
    assert replay.statistics().store.pages == 0
    replay.close()


def test_an_item_keeps_its_lookahead():
    """Views V17: the rows after an item stay as long as it, whatever the writer does."""
    rule = hr.ItemRule("t", 1, lookahead=5)
    replay = queue(rule, 64)
    views = {"ahead": hr.View("number", shift="0:5", mask=True)}
    writer = replay.writer(items=[rule])
    for number in range(1, 7):
        assert len(replay.table("t")) == 0
        writer.append({"number": number, "observation": 0})
    writer.close()
    batch = replay.sample("t", 1, views=views)
    assert batch.data["ahead"].tolist() == [[1, 2, 3, 4, 5, 6]]
    assert batch.data["ahead_mask"].all()
    assert replay.statistics().store.pages == 0
    replay.close()


@pytest.mark.parametrize("kernel", ["block", "finals"])
def test_windows_go_on_where_the_step_index_wraps(kernel: str):
    """W5: the final row beside a lane whose last step index is the largest there is ends a regular window too."""
    store = Store(SIGNATURE, 2048, make_arena=Arena.private, page_rows=16)
    block = LaneBlock(store, 2, 100)
    block.make_room()
    block.lane_steps[:] = STEP_MASK - 1
    for number in range(2):
        store.columns["number"][block.row : block.row + 2] = 10 * number + np.arange(2)
        block.commit()
    first, _ = block.make_room_for_finals()
    store.columns["number"][first : first + 2] = 20 + np.arange(2)
    block.commit_finals(np.arange(2), first)
    buffer = WindowBuffer(store.pins, WindowRule(3, 1, DROP, 0), np.ones(1))
    if kernel == "block":
        found = buffer.find_in_steps(block.last // 16, 1)
    else:
        found = buffer.find_at_ends(block.last + np.arange(2))
    assert numbers_of(store, found) == [([0, 10, 20], 0), ([1, 11, 21], 0)]


@pytest.mark.parametrize("end", ENDS)
def test_windows_far_longer_than_the_store_take_no_more_room_than_its_rows(end):
    """Room for as many as the longest episode could give would be gigabytes."""
    table = hr.Table("t", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=1000)
    rule = hr.ItemRule("t", 2**30 - 1, end=end, lookahead=2**30 - 1)
    with hr.Replay(SIGNATURE, [table], capacity=640) as replay, replay.writer(items=[rule]) as writer:
        rows = len(core_of(replay).store.arrays.steps)
        buffer = WindowBuffer(core_of(replay).store.pins, rule.window_rule, rule.priorities)
        assert buffer.most(1, 1) == rows + 4
        for _ in range(3):
            for number in range(50):
                writer.append({"number": number, "observation": number})
            writer.end_episode({"observation": 0})
        made = {EndOfEpisode.TILE: 51, EndOfEpisode.PAD: 1, EndOfEpisode.TRUNCATE: 1}
        assert len(replay.table("t")) == 3 * made.get(end, 0)
