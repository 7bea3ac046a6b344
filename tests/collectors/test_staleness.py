"""Batches that are at most k publications behind (CV8)."""

import os
import sys
import threading

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.multi.admission import Admission
from headrace.collectors.multi.staleness import ahead_within
from headrace.collectors.statistics import Tally
from headrace.leases.selector import PEERS
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class History:
    """The rule, read from a list of everything that has happened."""

    def __init__(self, bound):
        self.bound = bound
        self.events = []
        self.version = 0
        # [worker, version when it began, whether it is complete], the oldest first.
        self.ahead = []
        self.waits = False

    def note(self, event):
        self.events.append(event)

    @property
    def owed(self):
        """1 between a hand-out and the following publication or request."""
        last = [event for event in self.events if event in ("hand out", "publish", "request")]
        return int(bool(last) and last[-1] == "hand out")

    def may_begin(self):
        q = len(self.ahead)
        return q + self.owed <= self.bound or (self.waits and q == 0)

    def begin(self, worker):
        assert self.may_begin()
        self.note("begin")
        self.ahead.append([worker, self.version, False])

    def oldest(self, worker, complete):
        return next((each for each in self.ahead if each[0] == worker and each[2] == complete), None)


EVENTS = ("work", "work", "learn", "learn", "publish", "die", "block", "free")


@given(st.integers(1, 4), st.integers(0, 5), st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 3))))
def test_the_rule(workers, bound, events):
    # CV8: with at most one publication per batch no batch is more than k behind; a rollout begins whenever it may;
    # a learner that waits always gets a batch.
    history, blocked = History(bound), set()
    admission = Admission(
        Tally(),
        [1] * workers,
        -1,
        0,
        False,
        bound,
        blocked.__contains__,
        lambda worker, at_random: history.begin(worker),
    )
    requests = []

    def request():
        history.note("request")
        history.waits = True
        requests.append(admission.request())
        requests[-1].__enter__()

    def end_request():
        history.waits = False
        requests.pop().__exit__(None, None, None)

    def complete(worker):
        rollout = history.oldest(worker, complete=False)
        if rollout is not None:
            rollout[2] = True
            admission.completed(worker)

    def hand_out():
        worker, version, _ = history.ahead.pop(0)
        end_request()
        history.note("hand out")
        assert history.version - version <= bound
        admission.done(worker)
        admission.owe(worker)

    def check():
        assert list(admission.order) == [worker for worker, _, _ in history.ahead]
        slots = [sum(each[0] == worker for each in history.ahead) < 2 for worker in range(workers)]
        free = [worker for worker in range(workers) if slots[worker] and worker not in blocked]
        assert not (free and history.may_begin())

    request()  # The first one begins the iteration.
    admission.owe_all([2] * workers)
    for event, drawn in events:
        worker = drawn % workers
        if event == "work":
            complete(worker)
        elif event == "learn" and not history.waits:
            request()
        elif event == "publish" and not history.waits and history.owed:
            history.version += 1
            history.note("publish")
            admission.published()
        elif event == "die":
            history.ahead = [each for each in history.ahead if each[0] != worker or each[2]]
            admission.lost(worker)
        elif event == "block":
            blocked.add(worker)
        elif event == "free":
            blocked.discard(worker)
            admission.unblocked(worker)
        if history.waits and history.ahead and history.ahead[0][2]:
            hand_out()
        check()
    while blocked:
        admission.unblocked(blocked.pop())
    if not history.waits:
        request()
    assert history.ahead
    end_request()


AHEAD_EVENTS = ("work", "learn", "publish", "turn", "turn", "turn", "die", "come back")


@given(
    st.integers(1, 4),
    st.integers(1, 8),
    st.lists(st.tuples(st.sampled_from(AHEAD_EVENTS), st.integers(0, 3)), max_size=80),
)
def test_environments_that_act_a_rollout_ahead(workers, bound, events):
    # CV8: rows of a rollout may have been acted for since the worker's rollout before was begun; with at most one
    # publication per batch none is more than k behind; a learner that waits always gets a batch.
    version, waits, may_publish = 0, False, False
    # [worker, version of its oldest row, whether it is complete], the oldest first; and the version from which on the
    # next rollout of each worker may have rows: None of a process that has begun nothing.
    ahead, next_from, away = [], [None] * workers, set()

    def grant(worker, at_random):
        assert not at_random
        oldest = version if next_from[worker] is None else next_from[worker]
        ahead.append([worker, oldest, False])
        next_from[worker] = version

    inner, turns = ahead_within(bound, workers)
    admission = Admission(Tally(), [1] * workers, -1, 0, False, inner, away.__contains__, grant, turns)
    requests = []

    def request():
        requests.append(admission.request())
        requests[-1].__enter__()

    def complete(worker):
        rollout = next((each for each in ahead if each[0] == worker and not each[2]), None)
        if rollout is not None:
            rollout[2] = True
            admission.completed(worker)

    def hand_out():
        worker, oldest, _ = ahead.pop(0)
        requests.pop().__exit__(None, None, None)
        assert version - oldest <= bound
        admission.done(worker)
        admission.owe(worker)

    def come_back():
        while away:
            admission.unblocked(away.pop())

    request()
    waits = True
    admission.owe_all([2] * workers)
    for event, drawn in events:
        worker = drawn % workers
        if event in ("work", "turn"):
            complete(worker)
        if event in ("publish", "turn") and not waits and may_publish:
            version += 1
            may_publish = False
            admission.published()
        if event in ("learn", "turn") and not waits:
            request()
            waits = True
        if event == "turn" and ahead:  # All that is needed for the next batch.
            complete(ahead[0][0])
        if event == "die" and worker not in away:
            ahead[:] = [each for each in ahead if each[0] != worker or each[2]]
            next_from[worker] = None
            away.add(worker)
            admission.lost(worker)
        elif event == "come back":
            come_back()
        if waits and ahead and ahead[0][2]:
            hand_out()
            waits, may_publish = False, True
        assert list(admission.order) == [each[0] for each in ahead]
        assert len(ahead) <= bound
    come_back()
    if not waits:
        request()
    assert ahead
    requests.pop().__exit__(None, None, None)


def test_idle_workers_come_first():
    # CV7, CV8: min(W, k + 1) workers are busy, and each has its turn.
    begun = []
    admission = Admission(
        Tally(),
        [1] * 3,
        -1,
        0,
        False,
        1,
        lambda worker: False,
        lambda worker, at_random: begun.append(worker),
    )
    with admission.request():
        admission.owe_all([2] * 3)
    for _ in range(7):
        worker = admission.order[0]
        admission.completed(worker)
        admission.done(worker)
        admission.owe(worker)
        admission.published()
    assert begun == [0, 1, 2, 0, 1, 2, 0, 1, 2]


# ---- with workers --------------------------------------------------------------------------------------------------


def versioned(params, observation):
    return np.full(len(observation), int(params["a"]) % 4)


def make_policy():
    return hr.FunctionalPolicy(versioned, {"a": np.zeros(())})


def publish(collector, version):
    collector.update_policy_weights_(weights={"a": np.array(float(version))})


@pytest.mark.parametrize(("workers", "bound"), [(2, 0), (1, 1), (3, 1), (2, 3)])
def test_no_batch_is_further_behind(workers, bound):
    # CV8, CV2: and with more weights than batches the batches are counted.
    with hr.MultiCollector(
        lambda: CounterEnv(7),
        make_policy(),
        sync=False,
        num_workers=workers,
        frames_per_batch=6,
        max_staleness=bound,
    ) as collector:
        seen = set()
        for version in range(1, 16):
            batch = collector.next(timeout=40)
            lags = version - 1 - batch["policy_version"]
            assert ((lags >= 0) & (lags <= bound)).all()
            np.testing.assert_array_equal(batch["action"], batch["policy_version"] % 4)
            seen.add(batch.worker_idx)
            publish(collector, version)
        statistics = collector.statistics()
    assert statistics.lag_exceeded == 0
    assert statistics.lag_max <= bound
    assert statistics.frames_discarded <= 6 * bound
    assert seen == set(range(workers))


def test_more_publications_than_batches_are_counted():
    # CV8: statistics().lag_exceeded.
    with hr.AsyncCollector(
        lambda: CounterEnv(7), make_policy(), frames_per_batch=6, max_staleness=1
    ) as collector:
        collector.next(timeout=40)
        publish(collector, 1)
        wait_until(collector, lambda: len(collector._group.collection.batches) == 2)
        for version in range(2, 5):
            publish(collector, version)
        assert (collector.next(timeout=40)["policy_version"] <= 2).all()
        assert collector.statistics().lag_exceeded == 1


def test_a_request_that_ends_by_its_timeout_was_one(tmp_path):
    # CV8: the rollout that it lets begin is not dropped when weights follow before it is handed out; it is counted.
    os.mkfifo(tmp_path / "gate")
    gate = os.open(tmp_path / "gate", os.O_RDWR)

    class Gated(CounterEnv):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == 7:  # The first one of the second rollout, which may not be complete too early.
                with open(tmp_path / "gate", "rb", buffering=0) as opened:
                    opened.read(1)
            return super().step(action)

    with hr.AsyncCollector(lambda: Gated(7), make_policy(), frames_per_batch=6, max_staleness=0) as collector:
        collector.next(timeout=40)
        with pytest.raises(hr.DeadlineExceeded):  # The rollout was not begun before.
            collector.next(timeout=0)
        os.write(gate, b"x")
        wait_until(collector, lambda: len(collector._group.collection.batches) == 1)
        publish(collector, 1)
        assert (collector.next(timeout=40)["policy_version"] == 0).all()
        statistics = collector.statistics()
        assert (statistics.lag_max, statistics.lag_exceeded, statistics.frames_discarded) == (1, 1, 0)
        # Without a timeout, or with weights before the next request, the bound holds.
        publish(collector, 2)
        assert (collector.next(timeout=40)["policy_version"] == 2).all()
        assert collector.statistics().lag_exceeded == 1
    os.close(gate)


def wait_until(collector, there):
    with collector._group.status.changed:
        assert collector._group.status.changed.wait_for(there, 40)


def test_batches_come_in_the_order_in_which_they_were_begun():
    # CV8: a slow one holds those behind it.
    class Slow(CounterEnv):
        def step(self, action):
            threading.Event().wait(0.03)
            return super().step(action)

    with hr.MultiCollector(
        [lambda: Slow(9), lambda: CounterEnv(9)], sync=False, frames_per_batch=3, max_staleness=1
    ) as collector:
        order = [collector.next(timeout=40).worker_idx for _ in range(8)]
    assert order == [0, 1] * 4


def test_a_worker_that_stands_still_holds_nothing():
    # CR7, CV8: a rollout without any row yet is passed over, until the reset.
    lengths = [2, 100]
    with hr.MultiCollector(
        [lambda length=length: CounterEnv(length) for length in lengths],
        sync=False,
        frames_per_batch=4,
        max_staleness=2,
        reset_when_done=False,
    ) as collector:
        workers = [collector.next(timeout=40).worker_idx for _ in range(8)]
        assert workers.count(0) == 1
        collector.reset()
        assert 0 in [collector.next(timeout=40).worker_idx for _ in range(4)]


def test_another_worker_goes_on_for_one_that_dies():
    # CX3, CV8: what it has not completed holds nothing back, and is begun again later.
    class Dying(CounterEnv):
        def step(self, action):
            if self.step_count == 2:
                raise ZeroDivisionError("by intent")
            return super().step(action)

    with hr.MultiCollector(
        [lambda: Dying(50), lambda: CounterEnv(50)], sync=False, frames_per_batch=4, max_staleness=0
    ) as collector:
        assert [collector.next(timeout=40).worker_idx for _ in range(3)] == [1, 1, 1]
        assert collector.statistics().restarts >= 1


def test_a_state_keeps_the_order():
    # CQ3, CV8.
    def make():
        return hr.MultiCollector(
            [lambda: CounterEnv(9), lambda: CounterEnv(9)], sync=False, frames_per_batch=4, max_staleness=3
        )

    with make() as collector:
        for _ in range(3):
            collector.next(timeout=40)
        wait_until(collector, lambda: len(collector._group.collection.batches) == 3)
        state = collector.state_dict()
        expected = [collector.next(timeout=40) for _ in range(3)]
    with make() as collector:
        collector.load_state_dict(state)
        for batch in expected:
            again = collector.next(timeout=40)
            assert again.worker_idx == batch.worker_idx
            np.testing.assert_array_equal(again["observation"], batch["observation"])
        assert collector.next(timeout=40) is not None


def test_a_loaded_state_is_no_publication():
    # CQ3, CV8: the learner may publish after a state that follows a batch, so no rollout begins before that.
    with hr.AsyncCollector(
        lambda: CounterEnv(9), make_policy(), frames_per_batch=4, max_staleness=0
    ) as collector:
        collector.next(timeout=40)
        publish(collector, 1)
        collector.next(timeout=40)
        collector.load_state_dict(collector.state_dict())
        PEERS.submit(int).result()  # What goes on after the load has been submitted before.
        assert collector._group.collection.admission.under_way(0) == 0
        publish(collector, 2)
        assert (collector.next(timeout=40)["policy_version"] == 2).all()


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("0 or more", {"max_staleness": -1}),
        ("0 or more", {"max_staleness": 0.5}),
        ("0 or more", {"max_staleness": True}),
        ("sync=True", {"max_staleness": 0, "sync": True}),
    ],
)
def test_arguments(told, arguments):
    # CV8, CR13.
    with pytest.raises(ValueError, match=f"max_staleness: .*{told}"):
        hr.MultiCollector(lambda: CounterEnv(3), frames_per_batch=4, **{"sync": False} | arguments)


def test_with_a_replay_it_is_refused(make_replay):
    # CV8.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    with pytest.raises(ValueError, match="max_staleness: .*rate limiter"):
        hr.AsyncCollector(lambda: CounterEnv(3), frames_per_batch=4, max_staleness=1, replay_buffer=replay)
