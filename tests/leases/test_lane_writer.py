"""Lanes of different lengths in leased pages, against lists of episodes."""

from collections import deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.leases.destination import ReplayItems
from headrace.leases.grantor import LeaseGrantor
from headrace.leases.lane_writer import LaneWriter
from headrace.leases.messages import Ack, Lease
from headrace.replay.public import core_of

SIGNATURE = hr.Signature.like({"observation": np.zeros(2, np.int64), "action": np.int64(0)})
VIEWS = {
    "observation": hr.View("observation"),
    "next_observation": hr.View("observation", shift=1),
    "action": hr.View("action"),
}
RULES = [hr.ItemRule("t", 1, lookahead=1), hr.ItemRule("w", 3)]


class Model:
    """Maps each lane to the observations of its episodes; the action of a step is the second number."""

    def __init__(self, lanes: int) -> None:
        self.numbers = [0] * lanes
        self.episodes: list[list[list[int]]] = [[] for _ in range(lanes)]
        self.is_open = [False] * lanes

    def observe(self, lane: int) -> list[int]:
        self.numbers[lane] += 1
        self.episodes[lane][-1].append(self.numbers[lane])
        return [lane, self.numbers[lane]]

    def begin(self, lane: int) -> list[int]:
        self.episodes[lane].append([])
        self.is_open[lane] = True
        return self.observe(lane)

    def transitions(self) -> set[tuple[int, int, int]]:
        return {
            (lane, seen, then)
            for lane, episodes in enumerate(self.episodes)
            for episode in episodes
            for seen, then in pairwise(episode)
        }

    def windows(self) -> list[list[int]]:
        return sorted(
            [lane, *episode[start : start + 3]]
            for lane, episodes in enumerate(self.episodes)
            for episode in episodes
            for start in range(len(episode) - 2)
            if len(episode) > 1
        )


class Peer:
    """A writer of uneven lanes beside its grantor."""

    def __init__(self, lanes: int, capacity: int) -> None:
        fifo = hr.selectors.Fifo()
        once = hr.selectors.Uniform(replacement=False)
        tables = [hr.Table(name, sampler=once, remover=fifo, max_size=10_000) for name in "tw"]
        self.replay = hr.Replay(SIGNATURE, tables, capacity=capacity)
        core = core_of(self.replay)
        self.pages: deque[int] = deque()
        self.grantor = LeaseGrantor(ReplayItems(core, RULES), lanes, self.take)
        self.grantor.open(["observation"])
        self.grantor.lease_owed()
        store = core.store
        self.in_page = store.arrays.page_rows // lanes
        self.writer = LaneWriter(
            store.columns, store.arrays.page_rows, ["observation"], lanes, self.next_page
        )

    def take(self, *messages) -> None:
        for message in messages:
            if isinstance(message, Lease) and message.purpose == "rows":
                self.pages.append(message.page)
            assert isinstance(message, Lease | Ack)

    def next_page(self, purpose) -> int:
        assert purpose == "rows"
        return self.pages.popleft()

    def flush(self) -> None:
        for commit in self.writer.flush():
            self.grantor.commit(commit)
        assert self.writer.reportable == 0

    def transitions(self) -> list[tuple[int, int, int]]:
        count = len(self.replay.table("t"))
        if not count:
            return []
        data = self.replay.sample("t", count, views=VIEWS, timeout=0).data
        assert data["action"].tolist() == data["observation"][:, 1].tolist()
        assert data["observation"][:, 0].tolist() == data["next_observation"][:, 0].tolist()
        return [(*seen, then[1]) for seen, then in zip(*map(np.ndarray.tolist, data_pair(data)), strict=True)]

    def windows(self) -> list[list[int]]:
        count = len(self.replay.table("w"))
        seen = self.replay.sample("w", count, timeout=0).data["observation"] if count else np.zeros((0, 3, 2))
        return sorted([int(rows[0, 0]), *map(int, rows[:, 1])] for rows in seen)

    def close(self) -> None:
        self.grantor.close()
        for table in "tw":
            self.replay.reset(table)
        assert self.replay.statistics().store.pages == 0
        self.replay.close()


def data_pair(data):
    return data["observation"], data["next_observation"]


@settings(max_examples=150)
@given(st.integers(1, 4), st.sampled_from([150, 400]), st.data())
def test_each_lane_has_its_own_episodes(lanes: int, capacity: int, data: st.DataObject):
    """Each transition is stored once with what followed it, whatever the order in which lanes take steps."""
    peer, model = Peer(lanes, capacity), Model(lanes)
    writer, every = peer.writer, st.sets(st.integers(0, lanes - 1), min_size=1)
    for _ in range(data.draw(st.integers(1, 60))):
        wanted = sorted(data.draw(every))
        kind = data.draw(st.sampled_from(["append"] * 6 + ["end", "flush"]))
        if kind == "flush":
            peer.flush()
            assert set(peer.transitions()) <= model.transitions()
            continue
        if kind == "end":
            over = [lane for lane in wanted if model.is_open[lane] and len(model.episodes[lane][-1]) > 1]
            writer.end(np.array(over, np.int64))
            for lane in over:
                model.is_open[lane] = False
            continue
        fresh = [lane for lane in wanted if not model.is_open[lane]]
        first = np.array([model.begin(lane) for lane in fresh], np.int64).reshape(-1, 2)
        writer.begin(np.array(fresh, np.int64), {"observation": first})
        taken = [lane for lane in wanted if writer.free[lane]]
        if not taken:
            continue
        actions = np.array([model.numbers[lane] for lane in taken])
        then = np.array([model.observe(lane) for lane in taken])
        writer.append(np.array(taken), {"action": actions}, {"observation": then}, 1)
    over = np.array([lane for lane in range(lanes) if writer.is_open[lane]], np.int64)
    writer.end(over)
    peer.flush()
    found = peer.transitions()
    assert len(found) == len(set(found))
    assert set(found) == model.transitions()
    assert peer.windows() == model.windows()
    peer.close()


def test_a_lane_may_be_a_page_ahead_of_an_open_one():
    peer = Peer(2, 400)
    writer, one, other = peer.writer, np.array([0]), np.array([1])
    assert writer.free.tolist() == [2 * peer.in_page - 1] * 2
    writer.begin(np.array([0, 1]), {"observation": np.zeros((2, 2), np.int64)})
    writer.append(other, {}, {"observation": np.ones((1, 2), np.int64)}, 1)
    while writer.free[0]:
        writer.append(one, {}, {"observation": np.ones((1, 2), np.int64)}, 1)
        peer.flush()
    assert len(peer.replay.table("t")) == 0  # What followed the first step is not reported yet.
    with pytest.raises(ValueError, match=r"lanes \[0\] are a page ahead"):
        writer.append(one, {}, {"observation": np.ones((1, 2), np.int64)}, 1)
    writer.end(other)
    peer.flush()
    assert writer.free[0] >= peer.in_page
    assert len(peer.replay.table("t")) == 2 * peer.in_page - 2 + 1
    peer.close()


def test_calls_out_of_order_are_refused():
    peer = Peer(2, 400)
    writer, one = peer.writer, np.array([1])
    with pytest.raises(ValueError, match="no episode under way"):
        writer.append(one, {}, {"observation": np.zeros((1, 2))}, 1)
    writer.begin(one, {"observation": np.zeros((1, 2))})
    with pytest.raises(ValueError, match="no transition"):
        writer.end(one)
    writer.append(one, {}, {"observation": np.zeros((1, 2))}, 1)
    with pytest.raises(ValueError, match="end it first"):
        writer.begin(one, {"observation": np.zeros((1, 2))})
    peer.close()


def test_a_vector_step_has_the_lowest_version_of_its_lanes():
    peer = Peer(2, 400)
    writer = peer.writer
    writer.begin(np.array([0, 1]), {"observation": np.zeros((2, 2))})
    for lane, version in ((0, 7), (1, 5), (0, 9), (1, 12)):
        writer.append(np.array([lane]), {}, {"observation": np.zeros((1, 2))}, version)
    peer.flush()
    versions = peer.replay.sample("t", 2, views={"version": hr.View("policy_version")}, timeout=0)
    assert versions.data["version"].tolist() == [5, 5]
    peer.close()
