"""Workers that hang: in a step, in a reset, while they build their environments, or stopped from outside (CX5)."""

import contextlib
import logging
import os
import signal
import sys
import threading
import time

import cloudpickle
import numpy as np
import pytest

import headrace as hr
import headrace.collectors.handle.peer as peer_module
import headrace.collectors.multi.restarts as restarts_module
from headrace.clock import SystemClock
from headrace.collectors.handle.process import WorkerProcess
from headrace.collectors.handle.step_watch import WARN_SECONDS, StepWatch
from headrace.collectors.last_step import LastStep
from headrace.leases import selector
from headrace.testing import CounterEnv, FakeClock, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))
# Seconds of the clocks of the test.
TIMEOUT = 2.0


class Hanging(CounterEnv):
    """Hangs once, in its n-th call of a method; `flag` is a path that tells later processes of it."""

    def __init__(self, flag, method, call, length=7):
        super().__init__(length)
        self.flag, self.method, self.left = flag, method, call
        self._hang_if("make")

    def _hang_if(self, method):
        if method != self.method or self.flag.exists():
            return
        self.left -= 1
        if not self.left:
            with contextlib.suppress(FileExistsError):  # Another process may be here at the same time.
                self.flag.touch(exist_ok=False)
                threading.Event().wait()

    def step(self, action):
        self._hang_if("step")
        return super().step(action)

    def reset(self, **options):
        self._hang_if("reset")
        return super().reset(**options)


# ---- the watch -----------------------------------------------------------------------------------------------------


@pytest.fixture
def watched():
    clock, last_step = FakeClock(start=50.0), LastStep.new()
    yield clock, last_step, StepWatch(lambda: "worker 3", last_step, clock)
    last_step.release()


def test_seconds_begin_anew_with_each_step_and_each_wait(watched):
    clock, last_step, watch = watched
    found = []
    for may_step, steps in [(True, 0), (True, 0), (True, 1), (True, 0), (False, 0), (True, 0), (True, 0)]:
        clock.advance(0.5)
        if steps:
            last_step.note()
        found.append(watch.look(may_step=may_step))
    assert found == [0.5, 1.0, 0.0, 0.5, 0.0, 0.5, 1.0]


def test_time_in_which_nothing_looks_does_not_count(watched):
    # A learner that was stopped, or busy in C code, has served no worker meanwhile.
    clock, _, watch = watched
    clock.advance(1000.0)
    assert watch.look(may_step=True) == 1.0


def test_a_warning_every_30_seconds(watched, caplog):
    clock, last_step, watch = watched
    caplog.set_level(logging.WARNING)
    for look in range(1, 4 * int(WARN_SECONDS) + 1):
        clock.advance(0.5)
        watch.look(may_step=True)
        assert caplog.text.count("worker 3 has taken no step") == look // int(2 * WARN_SECONDS)
    last_step.note()
    watch.look(may_step=True)
    assert "no step for 30 s" in caplog.text
    assert "no step for 60 s" in caplog.text


# ---- workers -------------------------------------------------------------------------------------------------------


def one_may_step(collector):
    """Whether no worker was started again, and only one has a step to take."""
    handles = collector._group.handles
    return not collector.statistics().restarts and sum(handle._may_step() for handle in handles) == 1


@pytest.mark.parametrize(("method", "call"), [("step", 13), ("reset", 2)])
def test_a_hung_worker_is_killed_and_started_again(method, call, tmp_path, caplog, watch_clocks):
    flag = tmp_path / "hung"
    with hr.MultiCollector(
        lambda: Hanging(flag, method, call),
        sync=True,
        num_workers=2,
        frames_per_batch=10,
        worker_timeout=TIMEOUT,
    ) as collector:
        watch_clocks.runs = lambda: flag.exists() and one_may_step(collector)
        batches = [collector.next(timeout=40) for _ in range(4)]
        statistics = collector.statistics()
    assert flag.exists()
    assert statistics.restarts == 1
    assert statistics.frames == 40
    for batch in batches:
        assert batch["mask"].all()
        np.testing.assert_array_equal(batch["next_observation"], batch["observation"] + [0, 0, 1])
    assert "worker_timeout=2" in caplog.text


def test_without_restarts_it_is_worker_died(tmp_path, watch_clocks):
    flag = tmp_path / "hung"
    watch_clocks.runs = flag.exists
    with hr.AsyncCollector(
        lambda: Hanging(flag, "step", 8),
        frames_per_batch=5,
        worker_timeout=TIMEOUT,
        restart_workers=False,
    ) as collector:
        assert collector.next(timeout=40).shape == (1, 5)  # Complete rollouts come first.
        with pytest.raises(hr.WorkerDied, match="worker 0.*no step was finished for") as raised:
            collector.next(timeout=40)
        assert raised.value.exitcode == -signal.SIGKILL
        assert isinstance(raised.value.__cause__, hr.DeadlineExceeded)


def test_a_stopped_worker_is_killed(make_replay, watch_clocks):
    # A process that is stopped takes no signal but SIGKILL.
    replay = make_replay(SIGNATURE)
    with hr.AsyncCollector(
        lambda: CounterEnv(7), frames_per_batch=10, worker_timeout=TIMEOUT, replay_buffer=replay
    ) as collector:
        collector.start()
        replay.sample("t", 1, timeout=40)
        os.kill(collector.worker_pid, signal.SIGSTOP)
        watch_clocks.runs = lambda: one_may_step(collector)
        status = collector._group.status
        with status.changed:
            assert status.changed.wait_for(lambda: collector.statistics().restarts == 1, 45)


def test_waiting_is_not_hanging(make_replay, tmp_path, watch_clocks):
    # For the learner, in a pause, and for a question; each is longer than the limit.
    asked, may_answer = tmp_path / "asked", tmp_path / "may_answer"

    class Asked(CounterEnv):
        def ask(self):
            asked.touch()
            while not may_answer.exists():
                time.sleep(0.01)
            return 1

    replay, answers = make_replay(SIGNATURE), []
    options = {"frames_per_batch": 10, "worker_timeout": TIMEOUT}
    with (
        hr.AsyncCollector(lambda: Asked(7), replay_buffer=replay, **options) as free,
        hr.MultiCollector(lambda: CounterEnv(7), sync=True, **options) as iterated,
    ):
        iterated.next(timeout=40)
        free.start()
        asking = threading.Thread(target=lambda: answers.extend(free.map_fn("env.unwrapped.ask")))
        asking.start()
        while not asked.exists():
            time.sleep(0.01)
        watch_clocks.move(2 * int(TIMEOUT))
        may_answer.touch()
        asking.join(40)
        assert answers == [1]
        with free.pause():
            watch_clocks.move(2 * int(TIMEOUT))
        iterated.next(timeout=40)
        assert free.statistics().running
        assert free.statistics().restarts == iterated.statistics().restarts == 0


class ClockThatIsLate(SystemClock):
    """Passes long waits at once when a file exists."""

    def __init__(self, flag):
        self.flag = flag

    def monotonic(self):
        return time.monotonic() + 100.0 * self.flag.exists()

    def wait(self, condition, timeout):
        return super().wait(condition, 0.05 if timeout is None else min(0.05, timeout))


def test_an_environment_that_hangs_while_a_worker_is_started_again(tmp_path, monkeypatch):
    # CX3, CX5: bounded by start_timeout too; it counts as a further restart.
    flag = tmp_path / "hung"
    monkeypatch.setattr(restarts_module, "SYSTEM_CLOCK", ClockThatIsLate(flag))

    class Building(CounterEnv):
        def __init__(self):
            super().__init__(7)
            made = tmp_path / "made"
            if made.exists() and not flag.exists():
                flag.touch()
                threading.Event().wait()
            made.touch()

    with hr.AsyncCollector(Building, frames_per_batch=5, start_timeout=60.0) as collector:
        collector.next(timeout=40)
        os.kill(collector.worker_pid, signal.SIGKILL)
        status = collector._group.status
        with status.changed:
            assert status.changed.wait_for(lambda: collector.statistics().restarts == 2, 45)
        assert "not ready within 60 s" in collector.statistics().workers[0].last_error
        assert collector.next(timeout=40).shape == (1, 5)


class Large:
    """A policy that no socket takes at once."""

    def __init__(self):
        self.table = np.zeros(4 << 20, np.uint8)

    def __call__(self, observation):
        return observation[:, 2] % 4


def test_cx4_a_process_that_never_reads_its_task(monkeypatch):
    begin = WorkerProcess.begin
    pids = []

    def begin_stopped(process, *arguments, **more):
        os.kill(process.pid, signal.SIGSTOP)  # It imports NumPy still.
        pids.append(process.pid)
        begin(process, *arguments, **more)

    monkeypatch.setattr(WorkerProcess, "begin", begin_stopped)
    with pytest.raises(hr.DeadlineExceeded, match="worker 0"):
        hr.AsyncCollector(lambda: CounterEnv(3), Large(), frames_per_batch=5, start_timeout=0.2)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_cq1_questions_larger_than_what_waits_for_other_peers(monkeypatch):
    monkeypatch.setattr(selector, "_MOST_UNSENT_NBYTES", 1 << 20)
    with hr.AsyncCollector(lambda: CounterEnv(3), Large(), frames_per_batch=5) as collector:
        table = np.ones(4 << 20, np.uint8)
        assert collector.map_fn("policy.table.__class__.__len__", [(table,)]) == [len(table)]
        assert collector.next(timeout=40).shape == (1, 5)
        assert collector.statistics().restarts == 0


@pytest.mark.parametrize("name", ["worker_timeout", "start_timeout"])
@pytest.mark.parametrize(
    ("error", "given"),
    [(ValueError, 0), (ValueError, -1.0), (ValueError, float("nan")), (TypeError, "1"), (TypeError, True)],
)
def test_arguments(name, error, given):
    with pytest.raises(error, match=f"{name}: expected seconds"):
        hr.MultiCollector("CartPole-v1", sync=True, frames_per_batch=8, **{name: given})


class NeverCloses(CounterEnv):
    """Raises in its third step, and hangs when it is closed; `flag` is a path that tells later processes of it."""

    def __init__(self, flag):
        super().__init__(7)
        self.flag, self.steps = flag, 0

    def step(self, action):
        self.steps += 1
        if self.steps == 3 and not self.flag.exists():
            self.flag.touch()
            raise ValueError("the arm is stuck")
        return super().step(action)

    def close(self):
        if self.flag.exists() and self.steps == 3:
            threading.Event().wait()


@pytest.mark.parametrize("restarts", [True, False])
def test_an_environment_that_hangs_in_its_close_after_an_exception(tmp_path, monkeypatch, caplog, restarts):
    # CX3, CX5: also without worker_timeout.
    monkeypatch.setattr(peer_module, "_CLOSE_SECONDS", 0.1)
    with hr.AsyncCollector(
        lambda: NeverCloses(tmp_path / "flag"), frames_per_batch=6, restart_workers=restarts
    ) as collector:
        process = collector._group.handles[0].process
        if restarts:
            for _ in range(3):
                assert collector.next(timeout=40).frames == 6
            assert collector.statistics().restarts == 1
        else:
            with pytest.raises(hr.WorkerDied, match="the arm is stuck") as died:
                collector.next(timeout=40)
            assert isinstance(died.value.__cause__, ValueError)
        assert process.wait(40) == -signal.SIGKILL
    assert "its environments were not closed within 0.1 s" in caplog.text
    assert "ValueError: the arm is stuck" in caplog.text


class ClosingForEver(CounterEnv):
    """Hangs in its close."""

    def close(self):
        threading.Event().wait()


def broken():
    raise KeyError("no display")


def test_an_environment_that_cannot_be_built_while_another_one_of_its_worker_hangs_in_its_close():
    # CX4: its own error, and not DeadlineExceeded after start_timeout.
    factories = in_turn([lambda: CounterEnv(3), lambda: ClosingForEver(3), broken])
    with pytest.raises(KeyError, match="no display") as raised:
        hr.AsyncCollector(factories, frames_per_batch=6, num_envs=3, start_timeout=20.0)
    notes = "\n".join(raised.value.__notes__)
    assert "environment 1 is still closing after 1 s" in notes
    assert "worker 0" in notes
    assert "in broken" in notes


def test_a_worker_that_cannot_be_built_while_another_one_hangs_in_its_close(tmp_path):
    # CX4: the other one has built its environment.
    class Other(ClosingForEver):
        def reset(self, **options):
            (tmp_path / "reset").touch()
            return super().reset(**options)

    def broken_later():
        while not (tmp_path / "reset").exists():
            time.sleep(0.01)
        broken()

    with pytest.raises(KeyError, match="no display") as raised:
        hr.MultiCollector([lambda: Other(3), broken_later], sync=True, frames_per_batch=6, start_timeout=20.0)
    assert any(
        "worker 0" in note and "closing its environments after 1 s" in note for note in raised.value.__notes__
    )


def test_an_error_of_a_workers_constructor_while_an_environment_hangs_in_its_close():
    # CX4: the environments are built.
    def reset_fails():
        class Failing(ClosingForEver):
            def reset(self, **options):
                raise ValueError("no power")

        return Failing(3)

    with pytest.raises(ValueError, match="no power") as raised:
        hr.AsyncCollector(reset_fails, frames_per_batch=6, start_timeout=20.0)
    assert "an environment is still closing after 1 s" in "\n".join(raised.value.__notes__)
