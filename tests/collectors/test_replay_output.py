"""Rows of an inline collector on their way into a replay: what is open, where the store is full or Ctrl-C comes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.inline.replay_output import ReplayOutput
from headrace.leases.destination import ReplayItems
from headrace.replay.public import core_of
from headrace.tables.description.rules import ItemRule
from tests.collectors.counting_lanes import SIGNATURE, Lanes


def made(lanes, capacity):
    table = hr.Table("t", sampler=hr.selectors.Uniform(), remover=hr.selectors.Fifo(), max_size=100_000)
    replay = hr.Replay(SIGNATURE, [table], capacity=capacity)
    rules = [ItemRule("t", length=1, lookahead=1)]
    return replay, ReplayOutput(core_of(replay), lanes, ["observation"], rules)


def stored(replay):
    """The observations of all items, whose next ones are checked."""
    count = len(replay.table("t"))
    if not count:
        return []
    data = replay.sample("t", 50 * count, views=hr.views.transition(), timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], np.add(data["observation"], [0, 0, 1]))
    return sorted(set(map(tuple, data["observation"].tolist())))


CUTS = st.sets(st.integers(0, 4), min_size=1)
ROLLOUTS = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(0, 2**32 - 1), CUTS | st.none(), st.sampled_from([False] * 9 + [True])
    ),
    min_size=10,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), ROLLOUTS)
def test_which_lanes_are_open(count, rollouts):
    # CF2, CQ2, CX1: also after StoreFull, in a write or in a cut. Pages have 2 rows, so there are up to three blocks.
    replay, output = made(count, 80)
    lanes = Lanes(count)

    def check(expected):
        np.testing.assert_array_equal(output._is_open, expected)

    def cut(chosen, is_open):
        try:
            output.cut(chosen)
        except hr.StoreFull:
            replay.reset("t")
            output.cut(chosen)
        lanes.begin_episodes(chosen)
        is_open[chosen] = False
        check(is_open)

    for steps, seed, chosen, frees in rollouts:
        ends = np.random.default_rng(seed).random((steps, count)) < 0.3
        taken = lanes.steps(ends)
        try:
            output.write(taken, lanes.now)
        except hr.StoreFull:
            cut(np.arange(count), np.zeros(count, bool))
        else:
            check(~ends[-1])
            if chosen is not None:
                cut(np.array(sorted(lane for lane in chosen if lane < count), np.int64), ~ends[-1])
        if frees:
            replay.reset("t")
        stored(replay)
    replay.reset("t")
    output.close()
    stored(replay)
    replay.close()


@pytest.mark.parametrize("waits", [1, 2, 3, 4])
def test_ctrl_c_while_items_wait_loses_nothing_that_was_written(waits, monkeypatch):
    # CF2, CX7: all written transitions are items, those of open lanes before the interrupt, too.
    replay, output = made(3, 80)
    lanes = Lanes(3)
    output.write(lanes.steps(np.zeros((2, 3), bool)), lanes.now)
    before = np.array([[False, True, False], [False, False, True], [False, False, False]])
    steps = lanes.steps(before)
    calls = []

    def wait(self, most):
        calls.append(most)
        if len(calls) == waits:
            raise KeyboardInterrupt

    monkeypatch.setattr(ReplayItems, "wait_pending", wait)
    with pytest.raises(KeyboardInterrupt):
        output.write(steps, lanes.now)
    output.cut()
    written = [row for lane in range(3) for row in ([lane, 0, 0], [lane, 0, 1])]
    complete = (waits - 1) // 2  # Each of both blocks waits before each step.
    written += steps.columns["observation"][:complete].reshape(-1, 3).tolist()
    assert stored(replay) == sorted(map(tuple, written))
    output.write(lanes.steps(np.zeros((2, 3), bool)), lanes.now)
    output.close()
    assert len(stored(replay)) == len(written) + 6
    replay.close()
