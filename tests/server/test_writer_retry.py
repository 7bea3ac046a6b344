"""server AK1, AK3, AK4, AK6, LP2, LP3: connections of writers that are cut anywhere."""

import threading

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import headrace as hr
from headrace.errors import Closed
from tests.server.remote_writers import RemotelyWritten

SIGNATURE = hr.Signature.like({"n": np.int64(0), "who": np.int64(0)})
VIEWS = {"n": hr.View("n"), "who": hr.View("who")}
LENGTH, STRIDE = 3, 2


def replay_of(limiter=None, capacity=None):
    fifo = hr.selectors.Fifo()
    limiter = limiter or hr.rate_limiters.MinSize(1)
    table = hr.Table(
        "t", sampler=fifo, remover=fifo, max_size=10_000, rate_limiter=limiter, max_times_sampled=1
    )
    return RemotelyWritten(SIGNATURE, [table], capacity=capacity)


class Windows(RuleBasedStateMachine):
    """Two writers and one table; the windows of each are listed by a plain model."""

    @initialize(bound=st.sampled_from([None, 3]), lanes=st.sampled_from([1, 2]))
    def begin(self, bound, lanes):
        self.replay = replay_of(hr.rate_limiters.Queue(bound) if bound else None)
        rules = [hr.ItemRule("t", LENGTH, STRIDE)]
        self.lanes = lanes
        self.writers = [self.replay.remote.row_writer(lanes=lanes, items=rules, history=5) for _ in range(2)]
        self.numbers = [0, 0]
        # Of each writer and lane: the rows of the open episode, and the items so far in the order of their making.
        self.open = [[[] for _ in range(lanes)] for _ in range(2)]
        self.expected = [[[] for _ in range(lanes)] for _ in range(2)]
        self.seen = [[[] for _ in range(lanes)] for _ in range(2)]

    @rule(who=st.integers(0, 1), steps=st.integers(1, 7))
    def append(self, who, steps):
        for _ in range(steps):
            number = self.numbers[who]
            self.numbers[who] += 1
            ns = number * 10 + np.arange(self.lanes)
            step = {"n": ns, "who": np.full(self.lanes, who)}
            self.writers[who].append({k: v[0] for k, v in step.items()} if self.lanes == 1 else step)
            for lane in range(self.lanes):
                rows = self.open[who][lane]
                rows.append(int(ns[lane]))
                if len(rows) >= LENGTH and (len(rows) - LENGTH) % STRIDE == 0:
                    self.expected[who][lane].append(rows[-LENGTH:])

    @rule(who=st.integers(0, 1), lane=st.integers(0, 1))
    def end(self, who, lane):
        lane = min(lane, self.lanes - 1)
        rows = self.open[who][lane]
        if not rows:
            return
        self.writers[who].end_lanes(np.array([lane]), None)
        rows.clear()

    @rule(who=st.integers(0, 1), length=st.integers(1, 5))
    def create(self, who, length):
        rows = self.open[who][0]
        if len(rows) >= length:
            self.writers[who].create_item("t", length)
            self.expected[who][0].append(rows[-length:])

    @rule(of_server=st.booleans(), nbytes=st.integers(0, 400))
    def cut(self, of_server, nbytes):
        replay = self.replay
        channel = replay.channel_of_server() if of_server else replay.channel_of_writers()
        if channel is not None:
            channel.left = nbytes

    @rule(most=st.integers(1, 5))
    def take(self, most):
        count = min(most, len(self.replay.local.table("t")))
        if count:
            self._take(count)

    def _take(self, count):
        batch = self.replay.local.sample("t", count, timeout=0)
        masks = (
            np.ones(batch.data["n"].reshape(count, -1).shape, np.bool_) if batch.mask is None else batch.mask
        )
        for row, who, mask in zip(
            batch.data["n"].reshape(count, -1), batch.data["who"].reshape(count, -1), masks, strict=True
        ):
            numbers = row[mask].tolist()
            self.seen[who[0]][numbers[0] % 10].append(numbers)

    @rule(who=st.integers(0, 1))
    def flush(self, who):
        """Everything that was acknowledged is in the table, or was taken from it."""
        thread = threading.Thread(target=self._take_all, args=(who,))
        self.done = False
        thread.start()
        try:
            self.writers[who].flush(20)
        finally:
            self.done = True
            thread.join()
        count = len(self.replay.local.table("t"))
        if count:
            self._take(count)
        assert self.seen[who] == self.expected[who]

    def _take_all(self, _):
        while not self.done:
            try:
                batch = len(self.replay.local.table("t"))
                if batch:
                    self._take(batch)
            except (hr.errors.DeadlineExceeded, Closed):
                pass
            threading.Event().wait(0.001)

    def teardown(self):
        if not hasattr(self, "replay"):
            return
        try:
            for who in range(2):
                self.flush(who)
            for writer in self.writers:
                writer.close(20)
            assert self.seen == self.expected
            self.replay.end()
            store = self.replay.local.statistics().store
            assert store.pages == 0, "pages are held by connections that have ended"
        finally:
            self.replay.close()


TestWindows = Windows.TestCase
TestWindows.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def items(replay):
    count = len(replay.local.table("t"))
    if not count:
        return []
    return replay.local.sample("t", count, timeout=0).data["n"].reshape(count, -1).tolist()


@pytest.fixture
def replay():
    with replay_of() as made:
        yield made


@pytest.mark.parametrize("nbytes", [0, 1, 60])
@pytest.mark.parametrize("history", [None, 5])
def test_an_operation_whose_acknowledgement_is_lost_is_applied_once(replay, nbytes, history):
    writer = replay.remote.row_writer(items=[hr.ItemRule("t", 2)], history=history)
    for n in range(6):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    replay.channel_of_server().left = nbytes
    for n in range(6, 9):
        writer.append({"n": n, "who": 0})
    writer.flush(20)
    assert replay.server.statistics().connections_total == 3
    assert items(replay) == [[n, n + 1] for n in range(8)]
