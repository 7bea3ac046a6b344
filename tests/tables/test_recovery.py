"""Items that come from a file: looked at and counted in one go, compared with how each holds its pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_kernels import fewer

import headrace as hr
from headrace.replay.public import core_of
from headrace.store.layout import EMPTY, FINAL, LANES, LINKED, ORPHAN, REFERENCES
from headrace.store.pages.pinning import Pins
from headrace.store.pages.ranges import flags_of_pages
from headrace.store.pages.recovery import EMPTY_PAGE, PageRecovery
from headrace.store.window import Window
from headrace.tables.items.found_rows import pin_found, remove_broken
from headrace.tables.items.items import Items
from headrace.tables.items.layout import DEAD, FIRST, RECORD_ROW, SPAN
from headrace.tables.items.passes import pin_items
from headrace.tables.items.recovery import first_wrong

# Over several pages and round the end of the ring, in more than two blocks of `found_rows._pin_found`.
ITEMS = 2500


def filled(lookahead: int, sampler: Any, length: int = 1, max_times: int = 0) -> hr.Replay:
    """A replay whose oldest items have left."""
    table = hr.Table(
        "t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=ITEMS, max_times_sampled=max_times
    )
    replay = hr.Replay(hr.Signature.like({"x": 0}), [table], seed=0, capacity=4_000)
    with replay.writer(lanes=8, items=[hr.ItemRule("t", length, lookahead=lookahead)]) as writer:
        for number in range(ITEMS * 7 // 32):
            writer.append({"x": np.full(8, number)})
            if number % 50 == 49:
                writer.end_episode()
    return replay


def references_of(replay: hr.Replay, pin: Any) -> Any:
    """What pages are held by after `pin`, which is given the items over a copy of the pages' words."""
    store, ring = core_of(replay).store, core_of(replay).live_table("t").ring
    pages = store.arrays.pages.copy()
    pages[:, REFERENCES] = 1  # None is freed.
    told = pin(Items(ring.arrays, Pins(Window(store.arrays._replace(pages=pages)))))
    return told, pages[:, REFERENCES]


def found_in(replay: hr.Replay, next_key: int, max_times: int = 0) -> Any:
    """What `pin_found` tells, and what pages are held by after it."""
    arrays = core_of(replay).store.arrays
    flags = flags_of_pages(arrays.steps, arrays.pages, arrays.page_rows)
    has_empty = ((flags & np.uint32(EMPTY)) != 0).view(np.uint8)
    return references_of(replay, lambda items: pin_found(items, has_empty, next_key, max_times))


@pytest.mark.parametrize(("lookahead", "length"), [(0, 1), (1, 1), (3, 1), (1, 4)])
@pytest.mark.parametrize(
    "sampler", [hr.selectors.Uniform(), hr.selectors.Prioritized(0.6), hr.selectors.MaxHeap()]
)
def test_pages_are_held_by_as_many_items_as_one_after_the_other(
    lookahead: int, length: int, sampler: Any
) -> None:
    """Items with priorities, last updates and windows, of which some have left, in the middle too."""
    with filled(lookahead, sampler, length) as replay:
        keys = replay.sample("t", 50).info.keys
        if not isinstance(sampler, hr.selectors.MaxHeap):
            replay.delete("t", keys)
        live = len(replay.table("t"))
        told, found = found_in(replay, 1 << 62)
        assert told == (-1, live)
        _, wanted = references_of(replay, lambda items: pin_items(items, 1))
        np.testing.assert_array_equal(found, wanted)


def test_a_page_in_which_a_lane_waited_holds_its_items_as_others_do() -> None:
    """Where nothing was written in some row of a page, each item's own row is looked at."""
    with filled(0, hr.selectors.Uniform()) as replay:
        arrays, items = core_of(replay).store.arrays, core_of(replay).live_table("t").ring.arrays
        oldest = items.ring[FIRST]
        row = items.rows[oldest]
        replay.delete("t", items.keys[oldest : oldest + 1].copy())
        arrays.steps[row] |= np.uint32(EMPTY)
        told, found = found_in(replay, 1 << 62)
        assert told == (-1, ITEMS - 1)
        _, wanted = references_of(replay, lambda items: pin_items(items, 1))
        np.testing.assert_array_equal(found, wanted)


SPOILED = [
    "keys fall",
    "key twice",
    "key unused",
    "keys go round",
    "row beyond",
    "row of no page",
    "padding",
    "priority",
    "nan",
    "spent",
]


# In the middle, next to the oldest, and the newest.
@example("keys fall", 256, 0)
@example("key twice", 256, 0)
@example("key twice", 255, 1)
@example("key unused", 255, 0)
@example("keys go round", 0, 0)
@example("keys go round", 300, 0)
@example("padding", 499, 0)
@settings(max_examples=fewer(120))
@given(st.sampled_from(SPOILED), st.integers(1, ITEMS - 1), st.sampled_from([0, 1]))
def test_whatever_is_wrong_is_found_where_it_is(wrong: str, place: int, lookahead: int) -> None:
    """In the middle of the ring, next to its ends, beside the end of the arrays: where a look at each item finds it."""
    sampler = hr.selectors.Prioritized(0.6) if wrong in ("priority", "nan") else hr.selectors.Uniform()
    max_times = 5 if wrong == "spent" else 0
    with filled(lookahead, sampler, max_times=max_times) as replay:
        if isinstance(sampler, hr.selectors.Prioritized):
            batch = replay.sample("t", 2)
            replay.update_priorities("t", batch.info.keys, np.array([2.0, 3.0]))
        items, steps = core_of(replay).live_table("t").ring.arrays, core_of(replay).store.arrays.steps
        assert items.ring[SPAN] == ITEMS
        slot = (items.ring[FIRST] + place) % len(items.rows)
        before = (slot - 1) % len(items.rows)
        next_key = int(items.keys.max()) + 1
        match wrong:
            case "keys fall":
                items.keys[slot] = items.keys[before] - 1
            case "key twice":
                items.keys[slot] = items.keys[before]
            case "key unused":
                items.keys[slot] = next_key
            case "keys go round":
                # As numbers with a sign these two are below 0, and rise.
                items.keys[slot], items.keys[(slot + 1) % len(items.rows)] = 1 << 63, (1 << 64) - 1
            case "row beyond":
                items.rows[slot] = DEAD - 1
            case "row of no page":
                items.rows[slot] = len(steps) - 1
            case "padding":
                steps[items.rows[slot]] |= np.uint32(EMPTY)
            case "priority" | "nan":
                items.priorities[slot] = np.nan if wrong == "nan" else -1.0
            case "spent":
                items.times[slot] = 5
        (found, _), _ = found_in(replay, next_key, max_times)
        assert found == slot
        if wrong not in ("row beyond", "row of no page", "padding"):  # Items alone tell nothing of rows.
            problem, at, _ = first_wrong(Items(items, None), next_key, max_times)
            assert problem
            assert at == slot


# ---- over the ends of episodes ---------------------------------------------------------------------------------------


def streams() -> tuple[hr.Replay, int, int]:
    """A replay of windows over the ends of episodes; a final row beside its lane, where one begins, and its slot."""
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=500)
    replay = hr.Replay(hr.Signature.like({"x": 0}), [table], seed=0, capacity=4_000)
    rule = hr.ItemRule("t", 3, end=hr.EndOfEpisode.CONTINUE)
    with replay.writer(lanes=3, items=[rule]) as writer:
        for number in range(60):
            writer.append({"x": np.full(3, number)})
            if number % 7 == 6:
                writer.end_episode({"x": number}, lane=number % 3)
    arrays, items = core_of(replay).store.arrays, core_of(replay).live_table("t").ring.arrays
    final = np.flatnonzero(arrays.steps & np.uint32(FINAL))[0]
    (slot,) = np.flatnonzero(items.rows == final)
    return replay, int(final), int(slot)


@pytest.mark.parametrize("link", [1, 500, 1 << 30, ORPHAN])
@pytest.mark.parametrize("unlinked", [False, True])
def test_a_stream_is_not_followed_to_where_no_transition_leads_to_its_final_row(
    link: int, unlinked: bool
) -> None:
    """To another row, to a page where nothing is, to none at all: it would be read and counted there."""
    replay, final, _ = streams()
    with replay:
        arrays, items = core_of(replay).store.arrays, core_of(replay).live_table("t").ring.arrays
        assert found_in(replay, 1 << 62)[0] == (-1, len(replay.table("t")))
        if unlinked:
            arrays.steps[arrays.links[final] - 1] &= ~np.uint32(LINKED)
        arrays.links[final] = link
        (slot, _), _ = found_in(replay, 1 << 62)
        assert slot >= 0
        # The first window over that final row, which need not begin with it.
        assert items.rows[slot] <= final


def test_a_stream_whose_transition_was_given_up_is_broken() -> None:
    """The machine failed after the page of the transition was used again; that of its final row is still there."""
    replay, final, slot = streams()
    with replay:
        store, ring = core_of(replay).store, core_of(replay).live_table("t").ring
        gone = (int(store.arrays.links[final]) - 1) // store.arrays.page_rows
        assert gone != final // store.arrays.page_rows
        pages = store.arrays.pages.copy()
        pages[gone] = EMPTY_PAGE
        kept = ring.arrays._replace(records=ring.arrays.records.copy(), ring=ring.arrays.ring.copy())
        broken = remove_broken(Items(kept, Pins(Window(store.arrays._replace(pages=pages)))))
        assert 0 < broken < len(replay.table("t"))
        assert kept.records[slot, RECORD_ROW] == DEAD


def test_a_row_is_not_both_a_final_row_and_linked_to_one() -> None:
    """One changed bit makes it so; its link would be cut as that of a final row, and followed as its own."""
    replay, final, _ = streams()
    with replay:
        store = core_of(replay).store
        last = int(store.arrays.links[final]) - 1
        page = last // store.arrays.page_rows
        assert PageRecovery(store.arrays, store.pages_taken).arrays.pages[page, LANES]
        store.arrays.steps[last] |= np.uint32(FINAL)
        assert not PageRecovery(store.arrays, store.pages_taken).arrays.pages[page, LANES]
