"""Failures whose text a method of the user's makes: it may fail, and it may use the collector."""

import os
import sys

import cloudpickle
import pytest

import headrace as hr
from headrace.testing import CounterEnv

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
NO_TEXT = "Untold: its text is missing, because __str__ raised ZeroDivisionError"


class Untold(Exception):
    """Has no text."""

    def __str__(self):
        raise ZeroDivisionError


class Failing(CounterEnv):
    """Raises at its third step."""

    def __init__(self, error):
        super().__init__(100)
        self.error = error

    def step(self, action):
        if self.step_count == 2:
            raise self.error
        return super().step(action)


def run_until_it_fails(collector, replay):
    """Runs the collector freely; a learner that waits for rows is woken by the failure."""
    collector.start()

    def sample_for_ever():
        while True:
            replay.sample("t", 1, timeout=40)

    with pytest.raises((Untold, OSError)):
        sample_for_ever()


def queue(make_replay):
    return make_replay(SIGNATURE, hr.Table.queue("t", 100))


def test_inline_a_failure_without_a_text_is_not_silent(make_replay, caplog):
    # CF8: it is logged, ends waits, and is part of the statistics.
    replay = queue(make_replay)
    collector = hr.Collector(lambda: Failing(Untold()), frames_per_batch=100, replay_buffer=replay)
    run_until_it_fails(collector, replay)
    assert f"collecting has ended: {NO_TEXT}" in caplog.text
    assert collector.statistics().failure == NO_TEXT
    with pytest.raises(Untold):
        collector.shutdown()


def test_the_text_is_made_without_the_lock_of_the_counters(make_replay):
    # CT: statistics are safe at any time, also for a `__str__` that waits for another thread that asks for them.
    held = []

    class Looks(OSError):
        def __str__(self):
            held.append(collector._tally._lock.locked())
            return "looked"

    replay = queue(make_replay)
    collector = hr.Collector(lambda: Failing(Looks()), frames_per_batch=100, replay_buffer=replay)
    run_until_it_fails(collector, replay)
    assert collector.statistics().failure == "Looks: looked"
    assert held
    assert not any(held)
    with pytest.raises(Looks):
        collector.shutdown()


def test_a_worker_reports_a_failure_without_a_text(caplog):
    # CX2: the error names the worker and the type; the exception is its cause.
    with hr.MultiCollector(
        lambda: Failing(Untold()), sync=True, frames_per_batch=100, restart_workers=False
    ) as collector:
        with pytest.raises(hr.WorkerDied, match=NO_TEXT) as raised:
            collector.next(timeout=40)
        assert isinstance(raised.value.__cause__, Untold)
        statistics = collector.statistics()
    assert NO_TEXT in statistics.failure
    assert NO_TEXT in statistics.workers[0].last_error
    assert NO_TEXT in caplog.text


def test_the_text_of_a_failure_in_a_worker_is_made_there():
    # CX2: this process makes none under a lock that the calls of other threads need.
    class Own(OSError):
        def __str__(self):
            return f"of process {os.getpid()}"

    with hr.MultiCollector(
        lambda: Failing(Own()), sync=True, frames_per_batch=100, restart_workers=False
    ) as collector:
        pid = collector.statistics().workers[0].pid
        with pytest.raises(hr.WorkerDied, match=f" {pid}$"):
            collector.next(timeout=40)
        assert collector.statistics().workers[0].last_error.endswith(f" {pid}")


def test_a_constructor_raises_an_error_without_a_text():
    # CX4
    def make():
        raise Untold

    with pytest.raises(Untold):
        hr.MultiCollector(make, sync=True, frames_per_batch=10)


def test_a_value_that_cannot_be_pickled_for_an_error_without_a_text():
    # CQ4: TypeError with its type.
    class Sealed:
        def __reduce__(self):
            raise Untold

    class Holder(CounterEnv):
        @property
        def sealed(self):
            return Sealed()

    with hr.MultiCollector(lambda: Holder(3), sync=True, frames_per_batch=10) as collector:
        with pytest.raises(TypeError, match=r"got Sealed: its text is missing"):
            collector.getattr_env("sealed")
        with pytest.raises(TypeError, match=r"got Sealed: its text is missing"):
            collector.map_fn("env.unwrapped.reset", [[Sealed()]])


class Refusing(CounterEnv):
    """Takes its own state alone."""

    def state_dict(self):
        return {"own": True}

    def load_state_dict(self, state):
        if not state["own"]:
            raise Untold


def test_a_state_that_an_environment_refuses_without_a_text():
    # CQ3: the error says which environment refused it, and nothing was changed.
    with hr.Collector(lambda: Refusing(3), frames_per_batch=4) as collector:
        state = collector.state_dict()
        state["loop"]["stepper"]["environments"][0][0]["own"] = False
        with pytest.raises(ValueError, match=f"environments/0/0: .* {NO_TEXT}; nothing was changed"):
            collector.load_state_dict(state)
