"""`next(timeout)` of an inline collector, which steps the environments itself (CB10)."""

import threading

import numpy as np
import pytest

import headrace as hr
import headrace.collectors.collector as collector_module
import headrace.collectors.inline.rollouts as rollouts_module
from headrace.testing import CounterEnv, FakeClock

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


@pytest.fixture
def clock(monkeypatch):
    clock = FakeClock()
    for module in (collector_module, rollouts_module):
        monkeypatch.setattr(module, "SYSTEM_CLOCK", clock)
    return clock


def slow(clock, length=4):
    """Makes an environment whose steps take a second."""

    class Slow(CounterEnv):
        def step(self, action):
            clock.advance(1.0)
            return super().step(action)

    return lambda: Slow(length)


def act(observation):
    return observation[:, 2] % 4


@pytest.mark.parametrize(("timeout", "calls"), [(0, 10), (1, 10), (3, 4), (9.5, 1), (10, 1), (None, 1)])
def test_nothing_is_lost(timeout, calls, clock, counters):
    # Each call takes at least one step; the one that completes the rollout returns the whole batch.
    with hr.Collector(slow(clock), act, frames_per_batch=10, total_frames=30) as collector:
        batches = []
        for _ in range(3):
            for _ in range(calls - 1):
                with pytest.raises(hr.DeadlineExceeded, match="of 10 steps"):
                    collector.next(timeout=timeout)
            batches.append(collector.next(timeout=timeout))
        assert collector.next(timeout=timeout) is None
        statistics = collector.statistics()
    counters(batches, [4], action=act)
    assert (statistics.frames, statistics.batches, statistics.frames_discarded) == (30, 3, 0)


def test_the_replay_has_each_row_once(clock, make_replay):
    replay = make_replay(SIGNATURE)
    with hr.Collector(slow(clock), act, frames_per_batch=10, replay_buffer=replay) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=4)
        collector.next()
    data = replay.sample("t", len(replay.table("t")), views=hr.views.transition(), timeout=0).data
    assert len(replay.table("t")) == 10
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])


def test_a_seed_drops_the_rollout_under_way(clock):
    with hr.Collector(slow(clock), act, frames_per_batch=10) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=4)
        # A state leaves the rollout as it is; `test_state_of_steps` goes on from one.
        assert collector.state_dict()["rollout"] is not None
        assert collector.statistics().frames_discarded == 0
        collector.set_seed(3)
        batch = collector.next()
        assert batch["observation"][0, 0].tolist() == [0, 2, 0]
        assert collector.statistics().frames_discarded == 4
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=7)
    assert collector.statistics().frames_discarded == 11


def test_a_failure_drops_the_rollout_under_way(clock):
    class Failing(CounterEnv):
        steps = 0

        def step(self, action):
            clock.advance(1.0)
            self.steps += 1
            if self.steps == 6:
                raise hr.DeadlineExceeded("of the environment itself")
            return super().step(action)

    with hr.Collector(lambda: Failing(100), act, frames_per_batch=10) as collector:
        with pytest.raises(hr.DeadlineExceeded, match="steps of the rollout"):
            collector.next(timeout=4)
        with pytest.raises(hr.DeadlineExceeded, match="itself"):
            collector.next(timeout=4)
        assert collector.statistics().frames_discarded == 5
        assert collector.next()["t"][0].tolist() == list(range(10))


def test_waiting_for_another_thread_has_a_limit_too():
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(CounterEnv):
        def step(self, action):
            begun.set()
            assert go_on.wait(40)
            return super().step(action)

    with hr.Collector(lambda: Waiting(4), frames_per_batch=10) as collector:
        other = threading.Thread(target=collector.next)
        other.start()
        assert begun.wait(40)
        with pytest.raises(hr.DeadlineExceeded, match="another thread"):
            collector.next(timeout=0.01)
        go_on.set()
        other.join(40)
        assert collector.next(timeout=40).frames == 10


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_arguments(kind):
    with kind(lambda: CounterEnv(4), frames_per_batch=10, total_frames=10) as collector:
        for wrong in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout: expected seconds"):
                collector.next(timeout=wrong)
        for wrong in ("1", True):
            with pytest.raises(TypeError, match="timeout: expected seconds"):
                collector.next(timeout=wrong)
        # Nothing was begun.
        assert collector.next(timeout=40).frames == 10
        with pytest.raises(ValueError, match="timeout: expected seconds"):
            collector.next(timeout=-1)
