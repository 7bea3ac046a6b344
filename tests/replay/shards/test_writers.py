"""Lanes and their shards (CY4)."""

from contextlib import suppress

import numpy as np
import pytest

import headrace as hr

EPISODES = {"observation": 0.0, "action": 0, "reward": 0.0, "terminated": False, "truncated": False}


def queue(size=1000):
    return hr.Table.queue("t", size)


def numbers(shard, name="n"):
    found = shard.replay
    return found.sample("t", len(found.table("t")), timeout=0)[name].tolist() if len(found.table("t")) else []


def test_a_lane_writes_to_one_shard(make_shards):
    whole, shards = make_shards([queue()], 3)
    with whole.writer(lanes=5, items=[hr.ItemRule("t", 1)]) as writer:
        for t in range(2):
            writer.append({"n": np.arange(5) + 10 * t})
    assert [numbers(shard) for shard in shards] == [[0, 3, 10, 13], [1, 4, 11, 14], [2, 12]]


def test_lanes_of_all_writers_are_dealt_to_the_shards(make_shards):
    # Round robin: many writers of one lane fill all shards.
    whole, shards = make_shards([queue()], 2, first_lane=1)
    for n, lanes in enumerate([1, 1, 3, 1]):
        with whole.writer(lanes=lanes, items=[hr.ItemRule("t", 1)]) as writer:
            writer.append({"n": n if lanes == 1 else np.full(lanes, n)})
    assert [numbers(shard) for shard in shards] == [[1, 2, 3], [0, 2, 2]]


def test_a_step_is_stored_in_all_shards_or_in_none(make_shards):
    # replay I7, C3, I4
    whole, shards = make_shards([queue(2)], 2)
    writer = whole.writer(lanes=2, items=[hr.ItemRule("t", 1)], max_pending=2, timeout=0)
    with pytest.raises(hr.SpecError, match="n"):
        writer.append({"n": [0, 0.5]})
    for n in range(2):
        writer.append({"n": [n, n]})
    shards[0].replay.sample("t", 2)
    for n in range(2, 3):
        writer.append({"n": [n, n]})
    # Now one item of shard 1 is pending, which is its part of `max_pending`.
    with pytest.raises(hr.DeadlineExceeded):
        writer.append({"n": [9, 9]})
    shards[1].replay.sample("t", 2)
    writer.append({"n": [3, 3]})
    writer.close()
    assert [numbers(shard) for shard in shards] == [[2, 3], [2, 3]]


def test_a_writer_is_closed_after_its_replay(make_shards):
    """It tells of the shards whose items were refused, and of those only."""
    whole, shards = make_shards([queue(1)], 2)
    rules = [hr.ItemRule("t", 1)]
    applied, refused = (whole.writer(lanes=2, items=rules) for _ in range(2))
    applied.append({"n": [0, 1]})
    shards[1].replay.sample("t", 1)
    refused.append({"n": [2, 3]})  # The table of shard 0 is full.
    whole.close()
    applied.close()
    with pytest.raises(hr.Closed, match="^the replay was closed: 1 items of this writer were refused$"):
        refused.close()
    refused.close()


@pytest.mark.parametrize("lanes", [1, 4])
def test_step_writers_work_over_shards(make_shards, lanes):
    # Episodes end lane by lane; keys name the items.
    whole, _ = make_shards([queue()], 3, EPISODES)
    rules = [hr.NStepRule("t", 2), hr.EpisodeRule("t", 10)]
    numbers, no = np.arange(lanes), np.zeros(lanes, np.bool_)
    keys = []
    with hr.StepWriter(whole, rules, lanes=lanes, autoreset="disabled") as writer:
        writer.add_first(numbers * 100.0)
        for t in range(4):
            ends = (numbers % 2 == t % 2) & (t > 0)
            keys += writer.add(numbers, numbers * 1.0, ends, no, numbers * 100.0 + t + 1)
            if ends.any():
                writer.add_first(numbers * 100.0 + 50, mask=ends)
    found = whole.sample("t", len(whole.table("t")), timeout=0, views={"observation": hr.View()})
    assert len(set(keys)) == len(keys) > 0
    assert set(keys) <= set(found.info.keys.tolist())
    assert whole.final_columns == {"observation"}
    lane = found["observation"] // 100
    mask = np.ones(lane.shape, np.bool_) if found.mask is None else found.mask
    for row, real in zip(lane, mask, strict=True):
        assert len(set(row[real].tolist())) == 1


def test_priorities_of_functions_reach_the_lanes_they_were_computed_for(make_shards):
    # trajectories A7
    sampler = hr.selectors.MaxHeap()
    table = hr.Table("t", sampler=sampler, remover=hr.selectors.Fifo(), max_size=99)
    whole, _ = make_shards([table], 2, EPISODES)
    rule = hr.ItemRule("t", 1, priority=lambda rows: rows["observation"].sum())
    with hr.StepWriter(whole, [rule], lanes=3, autoreset="disabled") as writer:
        writer.add_first(np.array([1.0, 2.0, 3.0]))
        no = np.zeros(3, np.bool_)
        writer.add(
            np.zeros(3, np.int64), np.zeros(3), np.array([False, True, False]), no, np.array([4.0, 5.0, 6.0])
        )
        writer.add_first(np.array([9.0, 9.0, 9.0]), mask=np.array([False, True, False]))
        writer.add(np.zeros(3, np.int64), np.zeros(3), no, no, np.zeros(3))
    batch = whole.sample("t", 40)
    np.testing.assert_array_equal(batch["observation"], batch.info.priorities)


def test_a_flush_waits_for_all_shards(make_shards):
    # replay I5, I6
    whole, shards = make_shards([queue(1)], 2)
    writer = whole.writer(lanes=2, items=[hr.ItemRule("t", 1)])
    for n in range(3):
        writer.append({"n": [n, n]})
    assert writer.pending == 4
    with pytest.raises(hr.DeadlineExceeded, match="'t'.*'t'") as caught:
        writer.close(timeout=0)
    assert caught.value.pending == 4
    for shard in shards:
        for _ in range(2):
            shard.replay.sample("t", 1)
    writer.close(timeout=0)
    writer.close(timeout=0)
    with pytest.raises(hr.Closed):
        writer.append({"n": [0, 0]})


class Room:
    """Two shards with two lanes each, whose pages are few: the final row of one lane needs a page of its own.

    Attributes:
        writer: of the four lanes; each has begun an episode.
        other: of the second shard; its items take its pages.
    """

    def __init__(self, made):
        whole, self.shards = made
        self.writer = whole.row_writer(lanes=4, items=[hr.ItemRule("t", 2, end=hr.EndOfEpisode.PAD)])
        self.other = self.shards[1].replay.writer(items=[hr.ItemRule("other", 1)])
        self.count = 0
        self.append()

    @property
    def values(self):
        return {"n": 10 * self.count + np.arange(4)}

    def append(self):
        self.writer.append_checked(self.values)
        self.count += 1

    def fill(self):
        with suppress(hr.StoreFull):
            while True:
                self.other.append({"n": -1})

    def free(self):
        self.shards[1].replay.reset("other")

    def rows(self):
        """The windows of both shards, in order."""
        for shard in self.shards:
            data = shard.replay.sample("t", len(shard.replay.table("t")), timeout=0)["n"]
            yield data.tolist()


@pytest.fixture
def room(make_shards):
    tables = [
        queue(),
        hr.Table("other", sampler=hr.selectors.Fifo(), remover=hr.selectors.Fifo(), max_size=999),
    ]
    return Room(make_shards(tables, 2, capacity=512))


@pytest.mark.parametrize("ended", [[0, 1], [0, 1, 2], [1], [0, 1, 2, 3]])
def test_ends_that_find_no_page_in_one_shard_can_be_tried_again(room, ended):
    """replay C3: nothing has changed in any shard, so each episode ends once."""
    ended = np.array(ended)
    room.fill()
    finals = {"n": 100 + ended}
    try:
        room.writer.end_lanes(ended, finals)
    except hr.StoreFull:
        assert room.writer.open_lanes.all()
        room.free()
        room.writer.end_lanes(ended, finals)
    else:
        assert len(ended) == 4  # Final rows of all lanes are a step, for which the page has rows.
        room.free()
    assert np.flatnonzero(~room.writer.open_lanes).tolist() == ended.tolist()
    room.append()
    room.writer.flush(10)
    expected = [[], []]
    for lane in range(4):
        expected[lane % 2].append([lane, 100 + lane if lane in ended else 10 + lane])
    assert [sorted(rows) for rows in room.rows()] == expected


@pytest.mark.parametrize("ended", [[0, 1], [3]])
def test_steps_with_ends_that_find_no_page_in_one_shard_can_be_tried_again(room, ended):
    """replay C3: no lane has the step twice."""
    ended = np.array(ended)
    room.fill()
    call = (room.values, np.zeros(4, np.bool_), ended, {"n": 100 + ended})
    steps = room.writer.steps
    with pytest.raises(hr.StoreFull):
        room.writer.append_ends(*call)
    assert room.writer.steps == steps
    room.free()
    room.writer.append_ends(*call)
    room.writer.flush(10)
    expected = [[], []]
    for lane in range(4):
        expected[lane % 2].append([lane, 10 + lane])
        if lane in ended:
            expected[lane % 2].append([10 + lane, 100 + lane])
    assert [sorted(rows) for rows in room.rows()] == [sorted(rows) for rows in expected]
