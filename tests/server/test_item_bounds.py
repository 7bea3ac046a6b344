"""A client's count of the items that its calls make, beside a replay of this process (server AK6)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.replay.intake.selection import Selection
from headrace.server.client.writers.item_bounds import ItemBounds, is_stream
from headrace.server.client.writers.lane_lengths import LaneLengths
from headrace.tables.description.rules import PatternWindow, WholeEpisodes

ENDS = list(hr.EndOfEpisode)
SMALL = st.integers(1, 5)


def item_rule(length, stride, end, lookahead):
    if end in (hr.EndOfEpisode.PAD, hr.EndOfEpisode.TRUNCATE):
        stride = min(stride, length)
    lookahead = 0 if end is hr.EndOfEpisode.CONTINUE else lookahead
    return hr.ItemRule("t", length, stride, end, lookahead=lookahead)


RULES = st.one_of(
    st.builds(item_rule, SMALL, SMALL, st.sampled_from(ENDS), st.integers(0, 2)),
    st.builds(WholeEpisodes, st.just("t"), st.integers(1, 6)),
    st.just(PatternWindow("t", 1)),
)
CALLS = st.sampled_from(
    ["step"] * 6 + ["ends", "end", "end", "end without finals", "cut", "drop", "end streams"]
)


class Counted:
    """A writer of this process, beside the counts of a client."""

    def __init__(self, replay, rules, lanes, data):
        self.rules, self.lanes, self.data = rules, lanes, data
        self.writer = replay.row_writer(lanes=lanes, items=rules)
        self.writer.record_items()
        self.writer.declare_final_columns(["n"])
        self.lengths = LaneLengths.of(lanes)
        if any(map(is_stream, rules)):
            self.lengths = self.lengths.counting_streams()
        self.bounds = ItemBounds(rules)

    def made(self):
        return sum(len(keys) for _, keys in self.writer.take_made())

    def mask(self):
        return np.array(self.data.draw(st.lists(st.booleans(), min_size=self.lanes, max_size=self.lanes)))

    def selection(self, idle=False):
        patterns = [number for number, rule in enumerate(self.rules) if isinstance(rule, PatternWindow)]
        masks = {number: self.mask() & ~np.array(idle) for number in patterns}
        selection = Selection(masks, dict(masks))
        self.writer.select_windows(selection)
        return selection

    def values(self, lanes):
        return {"n": np.zeros(lanes, np.int64)}

    def step(self):
        selection = self.selection()
        count = self.bounds.of_step(self.lengths, selection)
        self.writer.append_checked(self.values(self.lanes) if self.lanes > 1 else {"n": 0})
        self.lengths = self.lengths.after_step()
        return count

    def ends(self):
        # Idle lanes have no episode under way (`WriterLike.append_ends`).
        idle = self.mask() & (self.lengths.open == 0)
        idle[0] = False
        ended = np.flatnonzero(self.mask() & ~idle)
        selection = self.selection(idle)
        count = self.bounds.of_step(self.lengths, selection, idle)
        count += self.bounds.of_ends(self.lengths, selection, ended, 1, steps=1)
        self.writer.append_ends(self.values(self.lanes), idle, ended, self.values(len(ended)))
        self.lengths = self.lengths.after_step(idle).after_end(ended, 1)
        return count

    def end(self, final_rows=1):
        lanes = np.flatnonzero((self.lengths.open > 0) & self.mask())
        selection = self.selection()
        count = self.bounds.of_ends(self.lengths, selection, lanes, final_rows)
        self.writer.end_lanes(lanes, self.values(len(lanes)) if final_rows else None)
        self.lengths = self.lengths.after_end(lanes, final_rows)
        return count

    def cut(self):
        # Windows that continue have no rows ahead (`ItemRule`).
        looks_ahead = any(isinstance(rule, hr.ItemRule) and rule.lookahead for rule in self.rules)
        ends = [end for end in ENDS if not (looks_ahead and end is hr.EndOfEpisode.CONTINUE)]
        end = self.data.draw(st.sampled_from([None, *ends]))
        lanes = np.flatnonzero(self.lengths.open)
        count = self.bounds.of_ends(self.lengths, self.selection(), lanes, 0, end=end)
        self.writer.cut_open_lanes(end)
        self.lengths = self.lengths.after_end(lanes, 0).after_restart(lanes)
        return count

    def drop(self):
        self.writer.drop_open_lanes()
        self.lengths = self.lengths.after_drop(np.arange(self.lanes))
        return 0

    def end_streams(self):
        self.writer.end_streams()
        self.lengths = self.lengths.after_restart(np.arange(self.lanes))
        return 0

    def call(self, name):
        match name:
            case "end without finals":
                return self.end(0)
            case "end streams":
                return self.end_streams()
        return getattr(self, name)()


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.lists(RULES, min_size=1, max_size=3),
    st.lists(CALLS, max_size=25),
    st.sampled_from([1, 3]),
)
def test_items_of_calls(data, rules, calls, lanes):
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=10_000)
    with hr.Replay(hr.Signature.like({"n": 0}), [table]) as replay:
        counted = Counted(replay, rules, lanes, data)
        for name in calls:
            count = counted.call(name)
            made = counted.made()
            if counted.lengths.streams.is_unknown.any():
                assert made <= count
            else:
                assert made == count, name
        counted.writer.close()


@pytest.mark.parametrize("count", [1, 2])
def test_a_stream_that_may_have_been_interrupted_is_bounded(count):
    lengths = LaneLengths.of(2).counting_streams()
    bounds = ItemBounds([hr.ItemRule("t", 3, end=hr.EndOfEpisode.CONTINUE)])
    idle = np.array([False, True])
    for _ in range(count):
        lengths = lengths.after_step(idle)
    assert bounds.of_step(lengths, Selection({}, {})) == (0, 2)[count == 2]
