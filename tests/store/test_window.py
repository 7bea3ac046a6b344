"""The window function against a list of lanes, each a list of episodes, each a list of rows (views V3, V6, V7, V17).

Every row holds a number of its own, so a row of the store is compared by what stands in it: a page that was used again
cannot pass for the old one.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

from headrace.spec import ArraySpec, Signature
from headrace.store.block import LaneBlock
from headrace.store.layout import EDGE, FINAL, KNOWN, LINKED, STEP_HALF, STEP_MASK, UNKNOWN
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.store.window import Window, step_after

SIGNATURE = Signature({"number": ArraySpec((), np.int64)})


@dataclass
class Page:
    """A page as the model sees it: alive while the writer reaches it or somebody pins it."""

    number: int
    first_step: int
    in_reach: bool = True
    pins: int = 0

    @property
    def alive(self) -> bool:
        return self.in_reach or self.pins > 0


@dataclass
class Row:
    number: int
    page: Page | None  # None: a final row beside the lanes
    where: int  # in the store
    is_final: bool = False


@dataclass
class Episode:
    ident: int
    rows: list[Row] = field(default_factory=list)


class History:
    """A writer's block and, beside it, the same history as plain lists."""

    def __init__(self, lanes: int, page_rows: int, reach: int) -> None:
        self.store = Store(SIGNATURE, 4096, make_arena=Arena.private, page_rows=page_rows)
        self.block = LaneBlock(self.store, lanes, reach)
        self.lanes = lanes
        self.reach = reach
        self.pages: list[Page] = []
        self.episodes: list[list[Episode]] = [[] for _ in range(lanes)]
        self.open: list[Episode | None] = [None] * lanes
        self.steps = 0
        self.numbers = 0
        self.idents = 0
        # What stood in a lane at each vector step: the row, or None.
        self.lane_rows: list[list[Row | None]] = [[] for _ in range(lanes)]

    # ---- the same operations on both ---------------------------------------------------------------------------------

    def _room(self) -> None:
        self.block.make_room()
        number = self.block.row // self.store.arrays.page_rows
        steps_of_a_page = self.store.arrays.page_rows // self.lanes
        if self.steps % steps_of_a_page == 0:
            self.pages.append(Page(number, self.steps))
            reached = [page for page in self.pages if page.in_reach]
            for page, following in itertools.pairwise(reached):
                if following.first_step <= self.steps - self.reach:
                    page.in_reach = False

    def step(self, final: frozenset[int] = frozenset(), idle: frozenset[int] = frozenset()) -> None:
        self._room()
        numbers = np.arange(self.numbers, self.numbers + self.lanes)
        self.numbers += self.lanes
        first = self.block.row
        self.store.columns["number"][first : first + self.lanes] = numbers
        if final or idle:
            marks = np.zeros((2, self.lanes), bool)
            marks[0, list(final)] = True
            marks[1, list(idle)] = True
            self.block.commit_ends(marks[0], marks[1])
        else:
            self.block.commit()
        for lane in range(self.lanes):
            if lane in idle:
                self.open[lane] = None
                self.lane_rows[lane].append(None)
                continue
            row = Row(int(numbers[lane]), self.pages[-1], first + lane, lane in final)
            self._append(lane, row)
            self.lane_rows[lane].append(row)
            if lane in final:
                self.open[lane] = None
        self.steps += 1

    def _append(self, lane: int, row: Row) -> None:
        episode = self.open[lane]
        if episode is None:
            episode = self.open[lane] = Episode(self.idents)
            self.idents += 1
            self.episodes[lane].append(episode)
        episode.rows.append(row)

    def end_inline(self) -> None:
        self._room()
        row = Row(self.numbers, self.pages[-1], self.block.row, is_final=True)
        self.store.columns["number"][self.block.row] = self.numbers
        self.numbers += 1
        self.block.commit_final()
        self._append(0, row)
        self.lane_rows[0].append(row)
        self.open[0] = None
        self.steps += 1

    def end_beside(self, lanes: list[int]) -> None:
        done = 0
        while done < len(lanes):
            first, room = self.block.make_room_for_finals()
            some = lanes[done : done + room]
            numbers = np.arange(self.numbers, self.numbers + len(some))
            self.numbers += len(some)
            self.store.columns["number"][first : first + len(some)] = numbers
            self.block.commit_finals(np.array(some), first)
            for place, lane in enumerate(some):
                self._append(lane, Row(int(numbers[place]), None, first + place, is_final=True))
                self.open[lane] = None
            done += len(some)

    def end_without_final(self, lanes: list[int]) -> None:
        for lane in lanes:
            self.block.end_without_final(lane)
            self.open[lane] = None

    def pin(self, choice: int) -> None:
        alive = [page for page in self.pages if page.alive]
        if alive:
            page = alive[choice % len(alive)]
            page.pins += 1
            self.store.pins.pin_page(page.number, 1)

    def unpin(self, choice: int) -> None:
        pinned = [page for page in self.pages if page.pins]
        if pinned:
            page = pinned[choice % len(pinned)]
            page.pins -= 1
            self.store.pins.pin_page(page.number, -1)

    # ---- what the model says -----------------------------------------------------------------------------------------

    def reachable(self, one: Page, other: Page) -> bool:
        """Whether every page from one to the other is there."""
        low, high = sorted((self.pages.index(one), self.pages.index(other)))
        return all(page.alive for page in self.pages[low : high + 1])

    def starts(self) -> list[tuple[int, Episode, int]]:
        """Every row in the lanes that is there, and the final rows beside them whose episode is still there."""
        return [
            (lane, episode, index)
            for lane in range(self.lanes)
            for episode in self.episodes[lane]
            for index in range(len(episode.rows))
            if self._page_of(episode, index).alive
        ]

    @staticmethod
    def _page_of(episode: Episode, index: int) -> Page:
        page = episode.rows[index].page or episode.rows[index - 1].page
        assert page is not None
        return page

    def at(self, episode: Episode, start: int, offset: int) -> Row | None:
        index = start + offset
        if not 0 <= index < len(episode.rows):
            return None
        there = self.reachable(self._page_of(episode, start), self._page_of(episode, index))
        return episode.rows[index] if there else None

    def number(self, where: int) -> int:
        return int(self.store.columns["number"][where])


@st.composite
def histories(draw: st.DrawFn) -> History:
    lanes = draw(st.sampled_from([1, 1, 2, 3]))
    history = History(lanes, draw(st.integers(lanes, 8)), draw(st.integers(1, 12)))
    kind = draw(st.sampled_from(["inline", "marked"] if lanes == 1 else ["beside", "marked"]))
    every_lane = st.sets(st.integers(0, lanes - 1))
    ended: set[int] = set()
    for _ in range(draw(st.integers(1, 40))):
        what = draw(st.sampled_from(["step"] * 6 + ["end"] * 2 + ["cut", "pin", "unpin"]))
        going = [lane for lane in range(lanes) if history.open[lane] is not None]
        if what == "pin":
            history.pin(draw(st.integers(0, 9)))
        elif what == "unpin":
            history.unpin(draw(st.integers(0, 9)))
        elif what == "step" and kind == "marked":
            # NEXT_STEP: a lane whose episode ended waits for as long as it likes, then goes on.
            final = draw(every_lane) & set(going)
            idle = draw(every_lane) & ended
            history.step(frozenset(final), frozenset(idle))
            ended = final | idle
        elif what == "step" or not going:
            history.step()
            ended = set()
        elif what == "cut":
            lanes_now = sorted(draw(every_lane) & set(going))
            history.end_without_final(lanes_now)
            ended |= set(lanes_now)
        elif kind == "inline":
            history.end_inline()
        elif kind == "beside":
            history.end_beside(sorted(draw(every_lane) & set(going)))
    # What was freed is out of sight from the next turn on.
    with history.store.reading():
        return history


@settings(max_examples=fewer(60))
@given(histories(), st.integers(1, 9))
def test_follow_equals_the_lists(history: History, furthest: int):
    """V3, V7, V17: a row is found exactly when it is in the same episode and everything between is still there."""
    for _, episode, index in history.starts():
        start = episode.rows[index]
        for offset in range(-furthest, furthest + 1):
            wanted = history.at(episode, index, offset)
            found = history.store.window.follow(start.where, offset)
            assert (found >= 0) == (wanted is not None)
            if wanted is not None:
                assert found == wanted.where
                assert history.number(found) == wanted.number


@settings(max_examples=fewer(60))
@given(histories(), st.integers(0, 9))
def test_oldest_and_newest_equal_the_lists(history: History, distance: int):
    """The edge of what is known: the nearest rows of the episode that are still there (views V6, V17)."""
    for _, episode, index in history.starts():
        start = episode.rows[index].where
        there = [offset for offset in range(-distance, distance + 1) if history.at(episode, index, offset)]
        if distance:
            first = history.at(episode, index, min(there))
            assert first is not None
            # A final row beside the lanes counts as one step too.
            assert history.number(history.store.window.oldest(start, distance)) == first.number
        last = history.at(episode, index, max(there))
        assert last is not None
        assert history.number(history.store.window.newest(start, distance)) == last.number


@settings(max_examples=fewer(60))
@given(histories(), st.integers(-12, 12))
def test_walk_counts_vector_steps_of_the_lane(history: History, offset: int):
    """Episodes and idle steps are ordinary steps for it; it tells how many are missing where the pages end."""
    steps_of_a_page = history.store.arrays.page_rows // history.lanes
    for lane in range(history.lanes):
        for step, row in enumerate(history.lane_rows[lane]):
            page = history.pages[step // steps_of_a_page]
            if row is None or not page.alive:
                continue
            here = history.pages.index(page)
            first = next(n for n in range(here, -1, -1) if n == 0 or not history.pages[n - 1].alive)
            beyond = [n for n in range(here, len(history.pages)) if not history.pages[n].alive]
            oldest_step = history.pages[first].first_step
            newest_step = (history.pages[beyond[0]].first_step if beyond else history.steps) - 1
            target, missing = history.store.window.walk(row.where, offset)
            if step + offset > newest_step:
                assert (target, missing) == (-1, step + offset - newest_step)
                continue
            assert missing == min(0, step + offset - oldest_step)
            wanted = history.lane_rows[lane][max(step + offset, oldest_step)]
            if wanted is not None:
                assert target == wanted.where


def expected(
    history: History, episode: Episode, index: int, offsets: list[int], post: bool
) -> list[tuple[int, int | None]]:
    """V6 and V7, word for word: for each offset what is known, and the number that may be shown."""
    ends = episode.rows[-1].is_final
    known_values = len(episode.rows) - (1 if post and ends else 0)
    now = index - 1 if post else index
    seen = [at for at in range(known_values) if history.at(episode, index, at - index) is not None]
    shown: list[tuple[int, int | None]] = []
    for offset in offsets:
        at = index + offset
        if at in seen:
            shown.append((KNOWN, episode.rows[at].number))
            continue
        # Only a value that the row may know (V6): nothing later than it is now or than its furthest offset shows.
        fit = [each for each in seen if each <= max(now, index + max(offsets))]
        before, after = [each for each in fit if each < at], [each for each in fit if each > at]
        nearest = max(before, default=None) if offset >= 0 else min(after, default=None)
        shown.append((UNKNOWN, None) if nearest is None else (EDGE, episode.rows[nearest].number))
    return shown


@settings(max_examples=fewer(80))
@given(
    histories(),
    st.lists(st.integers(-7, 7), min_size=1, max_size=5) | st.lists(st.integers(-5, -1), min_size=1),
    st.booleans(),
)
def test_resolve_equals_the_closed_form(history: History, offsets: list[int], post: bool):
    """V6, V7: pre and post columns, what is data, what may be shown at an edge, and what is nothing."""
    starts = history.starts()
    rows = np.empty((len(starts) + 1, len(offsets)), np.int64)
    known = np.empty(rows.shape, np.uint8)
    wanted = [episode.rows[index].where for _, episode, index in starts]
    history.store.window.resolve(
        np.array([*wanted, -1]), np.array(offsets, np.int64), post, rows.reshape(-1), known.reshape(-1)
    )
    assert (known[-1] == UNKNOWN).all()
    assert (rows >= 0).all()
    assert (rows < len(history.store.arrays.steps)).all()
    for place, (_, episode, index) in enumerate(starts):
        for where, state, (want, number) in zip(
            rows[place], known[place], expected(history, episode, index, offsets, post), strict=True
        ):
            assert state == want
            if number is not None:
                assert history.number(int(where)) == number


@settings(max_examples=fewer(40))
@given(histories())
def test_episode_ids_and_step_indexes_of_every_row(history: History):
    """Each row knows its episode and its index in it, the final row too (views V2: metadata)."""
    starts = history.starts()
    rows = np.array([episode.rows[index].where for _, episode, index in starts], np.int64)
    ids = np.empty_like(rows)
    history.store.window.episode_ids(rows, ids)
    # The ids count episodes in the order in which they began; the model gives them lane by lane in each step.
    assert ids.tolist() == [episode.ident for _, episode, _ in starts]
    words = history.store.arrays.steps[rows]
    assert (words & STEP_MASK).tolist() == [index for _, _, index in starts]
    assert ((words & FINAL) > 0).tolist() == [episode.rows[index].is_final for _, episode, index in starts]


# ---- single cases ----------------------------------------------------------------------------------------------------


def small_block(lanes: int = 1, page_rows: int = 4, reach: int = 1) -> History:
    return History(lanes, page_rows, reach)


@pytest.mark.parametrize("make_final", ["inline", "none"])
@pytest.mark.parametrize("begin", [STEP_MASK - 3, STEP_MASK - 2, STEP_MASK])
def test_step_index_past_its_bits(begin: int, make_final: str):
    """A step index goes on in its upper half: windows across the wrap are whole in both directions."""
    history = small_block(page_rows=16, reach=100)
    history.block.make_room()
    history.block.lane_steps[:] = begin
    for _ in range(12):
        history.step()
    if make_final == "inline":
        history.end_inline()
    else:
        history.end_without_final([0])
    history.step()
    (episode, following) = history.episodes[0]
    rows = [row.where for row in episode.rows]
    window = history.store.window
    indexes = (history.store.arrays.steps[rows] & STEP_MASK).tolist()
    assert max(indexes) <= STEP_MASK
    assert STEP_HALF in indexes
    assert 0 not in indexes
    for here in range(len(rows)):
        for there in range(len(rows)):
            assert window.follow(rows[here], there - here) == rows[there]
        assert window.follow(rows[here], len(rows) - here) == -1
        assert window.newest(rows[here], 100) == rows[-1]
        assert window.oldest(rows[here], here) == rows[0]
    assert window.follow(following.rows[0].where, -1) == -1


def test_step_index_past_its_bits_with_final_rows_beside():
    history = small_block(lanes=2, page_rows=16, reach=100)
    history.block.make_room()
    history.block.lane_steps[:] = [STEP_MASK - 1, STEP_MASK]
    for _ in range(3):
        history.step()
    history.end_beside([0, 1])
    for lane in range(2):
        rows = [row.where for row in history.episodes[lane][0].rows]
        for here in range(len(rows)):
            for there in range(len(rows)):
                assert history.store.window.follow(rows[here], there - here) == rows[there]


@pytest.mark.parametrize("count", [0, 1, 2, 5, 1 << 28])
def test_step_after_counts_one_by_one(count: int):
    """Many steps at once are as many single ones."""
    for step in (0, 1, STEP_HALF, STEP_MASK - 1, STEP_MASK):
        slowly = step
        for _ in range(min(count, 5)):
            slowly = step_after(slowly, 1)
        if count <= 5:
            assert step_after(step, count) == slowly
        assert 0 <= step_after(step, count) <= STEP_MASK
    assert step_after(STEP_MASK, 1) == STEP_HALF


def test_orphaned_final_row_knows_only_itself():
    """V17: a final row held by itself, whose transitions are gone, is alone; nothing of a reused page is its past."""
    history = small_block(lanes=2, page_rows=4, reach=1)
    history.step()
    history.step()
    history.end_beside([0])
    final = history.episodes[0][0].rows[-1].where
    window = history.store.window
    history.store.pins.pin_page(window.page_of(final), 1)
    for _ in range(12):
        history.step()
    assert window.follow(final, 0) == final
    for offset in (-3, -1, 1, 3):
        assert window.follow(final, offset) == -1
    assert window.oldest(final, 5) == final
    ids = np.empty(1, np.int64)
    window.episode_ids(np.array([final]), ids)
    assert ids[0] == -1
    rows, known = np.empty(2, np.int64), np.empty(2, np.uint8)
    window.resolve(np.array([final]), np.array([-1, 0]), False, rows, known)
    assert known.tolist() == [EDGE, KNOWN]
    assert rows.tolist() == [final, final]
    window.resolve(np.array([final]), np.array([-1, 0]), True, rows, known)
    assert known.tolist() == [UNKNOWN, UNKNOWN]


@pytest.mark.parametrize(
    ("offsets", "known"), [([-1], [UNKNOWN]), ([-2, 0], [EDGE, KNOWN]), ([-1, 1], [EDGE, KNOWN])]
)
def test_removed_rows_never_let_a_row_see_what_its_action_gave(offsets: list[int], known: list[int]):
    """V6, V17: with the rows before it gone, a row's own reward is no edge for a view that looks back only."""
    history = small_block(page_rows=2, reach=1)
    for _ in range(6):
        history.step()
    start = history.episodes[0][0].rows[2].where
    assert history.store.window.follow(start, -1) == -1
    rows, states = np.empty(len(offsets), np.int64), np.empty(len(offsets), np.uint8)
    history.store.window.resolve(np.array([start]), np.array(offsets), True, rows, states)
    assert states.tolist() == known
    history.store.window.resolve(np.array([start]), np.array([-1]), False, rows, states)
    assert (rows[0], states[0]) == (start, EDGE)


@pytest.mark.parametrize("marked", [False, True])
def test_final_row_in_a_page_that_held_links_before(marked: bool):
    """V3: links that a reused page held are not taken for links of the final row that stands there now."""
    store = Store(SIGNATURE, 64, make_arena=Arena.private, page_rows=4)
    beside = LaneBlock(store, 2, 1)
    for _ in range(2):
        beside.make_room()
        beside.commit()
        first, _ = beside.make_room_for_finals()
        beside.commit_finals(np.array([0, 1]), first)
    used = {beside.last // 4, first // 4}
    for page in beside.release():
        store.release(page)
    block = LaneBlock(store, 1, 100)
    for _ in range(6):  # Over every row of the pages that were used before.
        rows = []
        for _ in range(2):
            block.make_room()
            rows.append(block.row)
            block.commit()
        block.make_room()
        rows.append(block.row)
        if marked:
            block.commit_ends(np.array([True]), np.array([False]))
        else:
            block.commit_final()
        assert [store.window.follow(rows[-1], -n) for n in range(4)] == [*rows[::-1], -1]
        assert [store.window.follow(rows[0], n) for n in range(4)] == [*rows, -1]
        used -= {row // 4 for row in rows}
    assert not used


def test_lane_that_waited_begins_a_new_episode_at_a_plain_step():
    """V3: after idle steps a lane's next step is a new episode, also when nothing else is marked in that step."""
    history = small_block(lanes=2, page_rows=64, reach=100)
    history.step()
    history.step(final=frozenset({1}))
    history.step(idle=frozenset({1}))
    assert history.block.tail(1) == history.episodes[1][0].rows[-1].where
    history.step()
    rows = np.array([row.where for row in history.episodes[1][1].rows])
    ids = np.empty_like(rows)
    history.store.window.episode_ids(rows, ids)
    assert ids.tolist() == [2]
    assert history.block.tail(1) == rows[-1]


@pytest.mark.parametrize("see", [Window.follow, Window.oldest, Window.newest])
def test_final_rows_beside_are_linked_both_ways(see: Callable[..., int]):
    history = small_block(lanes=3, page_rows=6, reach=100)
    history.step()
    history.end_beside([2])
    last, final = (row.where for row in history.episodes[2][0].rows)
    window, looks_back = history.store.window, see is Window.oldest
    assert history.store.arrays.steps[last] & LINKED
    assert see(window, last, 1) == (last if looks_back else final)
    assert see(window, final, 1 if looks_back else 0) == (last if looks_back else final)
