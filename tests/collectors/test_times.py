"""Seconds of the parts of collection, against a clock that only environments, policies and tests move."""

import os
import signal
import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.loop.collecting import CollectingLoop
from headrace.collectors.loop.step_counts import StepCounts
from headrace.collectors.loop.times import LoopSeconds
from headrace.collectors.statistics import Tally
from headrace.collectors.worker.worker import Worker
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

RESET, STEP, ACT, TICK = 1.0, 2.0, 0.5, 1 / 1024


class WorkClock:
    """A clock that work moves; each look at it takes `tick`, so that a wait is seen too."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick
        self.broken = False

    def __call__(self):
        self.now += self.tick
        return self.now


class Slow(CounterEnv):
    """Resets and steps take their time."""

    def __init__(self, clock, length):
        super().__init__(length)
        self._clock = clock

    def reset(self, **options):
        self._clock.now += RESET
        return super().reset(**options)

    def step(self, action):
        if self._clock.broken:
            raise RuntimeError("broken")
        self._clock.now += STEP
        return super().step(action)


class Work:
    """Makes environments and a policy of one clock. In a worker process, its loop takes this clock."""

    def __init__(self, tick):
        self.clock, self.tick = WorkClock(tick), tick

    def __reduce__(self):
        return _in_worker, (self.tick,)

    def __call__(self):
        return Slow(self.clock, 3)

    def act(self, observation):
        self.clock.now += ACT
        return np.zeros(len(observation), int)


_WORK = {}


def _in_worker(tick):
    """One for environments and policy, which come by separate references."""
    if "work" not in _WORK:
        _WORK["work"] = Work(tick)
        _, *others = CollectingLoop.__init__.__defaults__
        CollectingLoop.__init__.__defaults__ = (_WORK["work"].clock, *others)
    return _WORK["work"]


def test_inline_seconds():
    # CT: two environments with episodes of 3 steps, six steps a batch.
    work = Work(0.0)
    with hr.Collector(work, work.act, frames_per_batch=12, num_envs=2) as collector:
        collector._loop.times.clock = work.clock
        for batches in (1, 2):
            collector.next()
            statistics = collector.statistics()
            resets = 2 + batches * 2 * 2
            assert statistics.env_seconds == batches * 12 * STEP + resets * RESET
            assert statistics.policy_seconds == batches * 6 * ACT
            assert statistics.write_seconds == 0.0
            assert statistics.wait_seconds == (batches - 1) * 40.0
            work.clock.now += 40.0  # The learner learns.


def test_inline_seconds_of_writing_and_after_a_failure():
    work = Work(TICK)
    with hr.Collector(work, work.act, frames_per_batch=6) as collector:
        collector._loop.times.clock = work.clock
        collector.next()
        # A look at the clock before and after each of six writes, before and after the report, and the batch.
        assert collector.statistics().write_seconds == 8 * TICK
        work.clock.broken = True
        work.clock.now += 7.0
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                collector.next()
            work.clock.now += 100.0  # The user mends it: this is no wait for the learner.
        work.clock.broken = False
        collector.next()
        assert 7.0 < collector.statistics().wait_seconds < 8.0


def test_seconds_of_a_worker():
    work = Work(TICK)
    with hr.AsyncCollector(work, work.act, frames_per_batch=12, num_envs=2, total_frames=36) as collector:
        assert len(list(collector)) == 3
        statistics = collector.statistics()
    # Every part also takes one look at the clock each time.
    assert statistics.env_seconds == pytest.approx(36 * STEP + 14 * RESET, abs=1.0)
    assert statistics.policy_seconds == pytest.approx(18 * ACT, abs=0.5)
    assert statistics.write_seconds >= 18 * TICK
    assert 2 * TICK <= statistics.wait_seconds < 1.0


SEND = 64.0


class WorkWithSlowSends(Work):
    """Also gives its worker a channel whose messages take time, as where the learner takes the processor."""

    def __reduce__(self):
        return _in_worker_with_slow_sends, (self.tick,)


class SlowChannel:
    def __init__(self, channel, clock):
        self._channel, self._clock = channel, clock

    def send(self, *messages, **options):
        self._clock.now += SEND
        self._channel.send(*messages, **options)

    def __getattr__(self, name):
        return getattr(self._channel, name)


def _in_worker_with_slow_sends(tick):
    if "work" not in _WORK:
        work, init = _in_worker(tick), Worker.__init__

        def with_slow_channel(self, channel, *arguments):
            init(self, SlowChannel(channel, work.clock), *arguments)

        Worker.__init__ = with_slow_channel
    return _WORK["work"]


def test_a_worker_waits_from_when_its_rollout_is_complete():
    # CT: also while it sends the report, with which the learner may take over the processor.
    work = WorkWithSlowSends(TICK)
    with hr.AsyncCollector(work, work.act, frames_per_batch=12, num_envs=2, total_frames=36) as collector:
        assert len(list(collector)) == 3
        statistics = collector.statistics()
    # The report of a rollout has the seconds up to its end, so those after the last one are in none.
    assert statistics.wait_seconds >= 2 * SEND
    assert statistics.env_seconds == pytest.approx(36 * STEP + 14 * RESET, abs=1.0)
    assert statistics.policy_seconds + statistics.write_seconds < SEND


def test_sums_and_limits():
    # CT, CV8: seconds of several reports add up; a batch beyond the bound counts once.
    tally = Tally(max_staleness=1)
    tally.newest = 3
    for stamp in (3, 2, 1, 0):
        tally.add(StepCounts(4, [], {stamp: 4, -1: 2}), 1)
        tally.add_seconds(LoopSeconds(1.0, 2.0, 3.0, 4.0))
    record = tally.record(running=False, paused=False)
    assert record.lag_exceeded == 2
    assert (record.env_seconds, record.policy_seconds) == (4.0, 8.0)
    assert (record.write_seconds, record.wait_seconds) == (12.0, 16.0)


def test_the_age_of_the_last_step():
    # CT: read from shared memory, so it rises while a step hangs, without a message.
    with hr.AsyncCollector(Hanging, frames_per_batch=4) as collector:
        assert collector.statistics().workers[0].last_step_age is None
        collector.next(timeout=40)
        # Eight steps run ahead; the ninth hangs.
        assert wait_until(lambda: collector.statistics().workers[0].last_step_age > 0.2)
        os.kill(collector.statistics().workers[0].pid, signal.SIGUSR1)
        for _ in range(3):
            collector.next(timeout=40)
        assert 0 <= collector.statistics().workers[0].last_step_age < 60
    assert collector.statistics().workers[0].last_step_age is not None


class Hanging(CounterEnv):
    """Its ninth step waits for a signal."""

    def __init__(self):
        super().__init__(100)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def step(self, action):
        if self.step_count == 8:
            signal.sigwait([signal.SIGUSR1])
        return super().step(action)


def wait_until(there):
    """Looks until it is so; the limit of the test ends it."""
    while not there():
        threading.Event().wait(0.01)
    return True
