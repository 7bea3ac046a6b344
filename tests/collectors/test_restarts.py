"""Workers that are started again."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import numpy as np
import pytest

import headrace as hr
import headrace.collectors.multi.restarts as restarts_module
from headrace.clock import SystemClock
from headrace.collectors.handle.process import WorkerProcess
from headrace.testing import CounterEnv, FakeClock

cloudpickle.register_pickle_by_value(sys.modules[__name__])

SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


class Failing(CounterEnv):
    """Fails at one of its steps."""

    def __init__(self, at, how, length=1000):
        super().__init__(length)
        self.at, self.how, self.steps = at, how, 0

    def step(self, action):
        self.steps += 1
        if self.steps == self.at:
            if self.how == "raise":
                raise ZeroDivisionError("by intent")
            os._exit(7)
        return super().step(action)


def kill(collector, worker_idx=0):
    """Kills a worker and waits until it is started again, or has failed."""
    worker = collector.statistics().workers[worker_idx]
    os.kill(worker.pid, signal.SIGKILL)
    status = collector._group.status
    with status.changed:
        assert status.changed.wait_for(
            lambda: status.workers[worker_idx].has_died or came_back(collector, worker), 40
        )


def came_back(collector, worker):
    handle = collector._group.handles[worker.worker_idx]
    return handle.process.pid != worker.pid and not handle.status.is_restarting


def check_rows(batch):
    """Rows are those of counters, also in a batch with a worker that was started again."""
    np.testing.assert_array_equal(batch["next_observation"], batch["observation"] + [0, 0, 1])
    np.testing.assert_array_equal(batch["reward"], 4 * batch["observation"][..., 2] + batch["action"])
    np.testing.assert_array_equal(batch["t"], batch["observation"][..., 2])


@pytest.mark.parametrize("sync", [True, False])
def test_a_killed_worker_is_started_again(sync, caplog):
    # CX3: same index, new ids; the batch waits for it (synchronous) or others go on.
    with hr.MultiCollector(
        lambda: CounterEnv(7), sync=sync, num_workers=2, num_envs=2, frames_per_batch=24
    ) as collector:
        seen = set()
        for number in range(9):
            batch = collector.next(timeout=40)
            check_rows(batch)
            if number in (2, 5):
                kill(collector, number % 2)
            seen.update(np.unique(batch["episode_id"]).tolist())
        statistics = collector.statistics()
    assert (statistics.frames, statistics.batches) == (9 * 24, 9)
    assert statistics.restarts == 2
    assert [worker.restarts for worker in statistics.workers] == [1, 1]
    assert "SIGKILL" in statistics.workers[0].last_error
    assert caplog.text.count("it is started again") == 2
    assert "worker 0" in caplog.text
    assert seen == set(range(len(seen))) or not sync


@pytest.mark.parametrize("how", ["raise", "exit"])
def test_an_environment_that_fails_is_built_again(how, tmp_path):
    # CX1, CX3: what the worker had not completed is lost and counted. The third process does not fail.
    def build():
        (tmp_path / str(os.getpid())).touch()
        return Failing(13 if len(list(tmp_path.iterdir())) < 3 else None, how)

    with hr.MultiCollector(build, sync=False, frames_per_batch=5, max_restarts=1) as collector:
        steps = [collector.next(timeout=40)["t"][0, 0] for _ in range(6)]
        statistics = collector.statistics()
    assert steps == [0, 5] * 3
    assert statistics.restarts == 2
    assert statistics.frames == 30
    assert statistics.frames_discarded == 4  # Steps 11 and 12 of two processes.
    assert ("ZeroDivisionError: by intent" if how == "raise" else "exit code 7") in statistics.workers[
        0
    ].last_error


def test_the_last_death_is_raised():
    # CX3: at most max_restarts without a rollout in between; complete rollouts come first.
    class Worse(CounterEnv):
        def __init__(self):
            super().__init__(100)
            self.steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == 3:
                raise ZeroDivisionError("by intent")
            return super().step(action)

    with hr.MultiCollector(Worse, sync=False, frames_per_batch=5, max_restarts=2) as collector:
        with pytest.raises(hr.WorkerDied, match="ZeroDivisionError") as raised:
            collector.next(timeout=40)
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
        assert collector.statistics().restarts == 2
        assert collector.statistics().workers_alive == 0


class HurriedClock(SystemClock):
    """Passes pauses at once, and notes them. It moves only with them, so they are exact on a busy machine too."""

    def __init__(self):
        self.now, self.pauses = 0.0, []

    def monotonic(self):
        return self.now

    def wait(self, condition, timeout):
        if timeout is None or timeout > 1.0:  # Until a process is ready.
            return super().wait(condition, 0.05)
        self.pauses.append(timeout)
        self.now += timeout
        return False


def test_pauses_double(monkeypatch):
    # CX3: 0.1, 0.2, 0.4 s.
    clock = HurriedClock()
    monkeypatch.setattr(restarts_module, "SYSTEM_CLOCK", clock)
    with hr.MultiCollector(lambda: Failing(2, "exit"), sync=False, frames_per_batch=5) as collector:
        with pytest.raises(hr.WorkerDied, match="exit code 7"):
            collector.next(timeout=40)
        assert collector.statistics().restarts == 3
    np.testing.assert_allclose(clock.pauses, [0.1, 0.2, 0.4])


def versioned(params, observation):
    return np.full(len(observation), int(params["a"]))


@pytest.mark.parametrize("updates", [0, 1, 3])
def test_it_acts_with_the_newest_weights(updates):
    # CX3, CV5: and stamps their number.
    policy = hr.FunctionalPolicy(versioned, {"a": np.zeros(())})
    with hr.MultiCollector(
        lambda: CounterEnv(7), policy, sync=True, num_workers=2, frames_per_batch=8
    ) as collector:
        collector.next(timeout=40)
        for version in range(updates):
            collector.update_policy_weights_(weights={"a": np.array(float(version + 1))})
        kill(collector, 1)
        batch = collector.next(timeout=40)
    assert (batch["action"] == updates).all()
    assert (batch["policy_version"] == updates).all()


def test_it_uses_the_present_hooks():
    # CH1, CX3.
    class Hook:
        def __call__(self, batch):
            if (batch["observation"][..., 1] >= 100).any():
                raise ZeroDivisionError("by the hook")

    with hr.MultiCollector(
        lambda: CounterEnv(2), sync=True, num_workers=2, frames_per_batch=8, max_restarts=0
    ) as collector:
        collector.post_collect_hook = Hook()
        collector.next(timeout=40)
    with hr.MultiCollector(
        lambda: CounterEnv(1), sync=True, num_workers=2, frames_per_batch=80, max_restarts=1
    ) as collector:
        collector.post_collect_hook = Hook()
        collector.next(timeout=40)
        kill(collector, 0)
        collector.next(timeout=40)
        # Worker 1 reaches its 100th episode first; worker 0 only if the hook came to its second process too.
        for _ in range(4):
            collector.next(timeout=40)
        assert [
            worker.restarts >= at_least
            for worker, at_least in zip(collector.statistics().workers, (2, 1), strict=True)
        ] == [True, True]


def test_weights_of_a_worker_that_is_away():
    # CW1: the rest get the weights, and the dead one is started again with them.
    policy = hr.FunctionalPolicy(versioned, {"a": np.zeros(())})
    with hr.MultiCollector(
        lambda: CounterEnv(7), policy, sync=True, num_workers=2, frames_per_batch=8
    ) as collector:
        collector.next(timeout=40)
        os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
        collector.update_policy_weights_(weights={"a": np.array(2.0)})
        batch = collector.next(timeout=40)
    assert (batch["action"] == 2).all()
    assert (batch["policy_version"] == 1).all()


def test_seeds_go_on_with_another_stream():
    # CX3, CS3: the same for the same seed and the same history; and not those of the first start.
    def observations():
        with hr.MultiCollector(
            "CartPole-v1", sync=True, num_workers=2, num_envs=2, frames_per_batch=8, seed=5
        ) as collector:
            found = [collector.next(timeout=40)]
            kill(collector, 1)
            found.append(collector.next(timeout=40))
        return [batch["observation"] for batch in found]

    one, other = observations(), observations()
    for first, second in zip(one, other, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not (one[0][2:, 0] == one[1][2:, 0]).all(-1).any()


def test_random_rollouts_stay_random(take):
    # CR4: a rollout that is begun again is decided as before.
    with hr.MultiCollector(
        lambda: CounterEnv(7), sync=True, num_workers=2, frames_per_batch=8, init_random_frames=16
    ) as collector:
        versions = []
        for number in range(4):
            versions.append(int(collector.next(timeout=40)["policy_version"].max()))
            if number == 0:
                kill(collector, 0)
    assert versions == [-1] * 4  # No policy: always random.


def fifo_table():
    fifo = hr.selectors.Fifo()
    return hr.Table("t", sampler=fifo, remover=fifo, max_size=2_000_000, max_times_sampled=1)


@pytest.mark.parametrize("paused", [False, True])
def test_free_running_goes_on(make_replay, paused):
    # CX3, CX6, CF6: no committed row is lost or doubled; in a pause nothing is written, also by the restart.
    replay = make_replay(SIGNATURE, fifo_table())
    with hr.MultiCollector(
        lambda: CounterEnv(50),
        sync=False,
        num_workers=2,
        num_envs=2,
        frames_per_batch=20,
        replay_buffer=replay,
    ) as collector:
        collector.start()
        for number in range(3):
            frames = collector.statistics().frames
            wait_until(collector, lambda frames=frames: collector.statistics().frames > frames + 100)
            if not paused:
                kill(collector, number % 2)
                continue
            with collector.pause():
                items = len(replay.table("t"))
                os.kill(collector.statistics().workers[number % 2].pid, signal.SIGKILL)
                wait_until(collector, lambda: any(w.is_restarting for w in collector._group.status.workers))
                threading.Event().wait(0.3)  # Longer than the pause before a restart.
                assert len(replay.table("t")) == items
                with pytest.raises(RuntimeError), collector.pause():
                    pass
            wait_until(collector, lambda: not any(w.is_restarting for w in collector._group.status.workers))
        assert collector.statistics().running
    statistics = collector.statistics()
    assert statistics.restarts == 3
    # A worker in a pause has reported all its steps; one that runs less than a rollout ago.
    assert statistics.frames_discarded <= (0 if paused else 3 * 20)
    data = replay.sample("t", len(replay.table("t")), views=hr.views.transition(), timeout=5).data
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    assert len(data["reward"]) == statistics.frames


def wait_until(collector, there):
    with collector._group.status.changed:
        assert collector._group.status.changed.wait_for(there, 40)


def test_a_question_to_a_worker_that_dies():
    # CQ1: WorkerDied at once; the next question goes to its successor.
    class Ending(CounterEnv):
        def end(self):
            os._exit(3)

    with hr.MultiCollector(lambda: Ending(5), sync=False, frames_per_batch=5) as collector:
        begin = time.monotonic()
        with pytest.raises(hr.WorkerDied, match="exit code 3"):
            collector.map_fn("env.unwrapped.end")
        assert time.monotonic() - begin < 20
        wait_until(collector, lambda: not collector._group.status.workers[0].is_restarting)
        assert collector.getattr_env("step_count") >= 0
        assert collector.next(timeout=40).shape == (1, 5)


def test_a_question_while_a_worker_is_away(make_replay, tmp_path):
    # CQ1: its successor answers, once. CQ2, CS1: resets and seeds are possible meanwhile.
    may_build = tmp_path / "may_build"
    may_build.touch()

    class Asked(CounterEnv):
        asked = 0

        def __init__(self):
            while not may_build.exists():
                time.sleep(0.01)
            super().__init__(5)

        def ask(self):
            self.asked += 1
            return self.asked

    with (
        hr.MultiCollector(
            Asked, sync=False, num_workers=2, frames_per_batch=5, replay_buffer=make_replay(SIGNATURE)
        ) as collector,
        ThreadPoolExecutor(1) as threads,
    ):
        collector.start()
        for _ in range(2):
            may_build.unlink()
            os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
            wait_until(collector, lambda: collector._group.status.workers[0].is_restarting)
            handle = collector._group.handles[0]
            while handle.peer.ready is not None:  # Until its new process is there.
                threading.Event().wait(0.001)
            collector.reset([True, False])
            assert collector.set_seed(3) == 4
            asking = threads.submit(collector.map_fn, "env.unwrapped.ask")
            while not handle.questions.are_open:
                threading.Event().wait(0.001)
            may_build.touch()
            assert asking.result(20)[0] == 1


def test_a_pause_waits_for_the_rows_of_a_worker_that_is_gone(make_replay):
    # CF6: their final rows come before the pause or after it.
    replay = make_replay(SIGNATURE, fifo_table())
    with hr.AsyncCollector(lambda: CounterEnv(50), frames_per_batch=20, replay_buffer=replay) as collector:
        collector.start()
        wait_until(collector, lambda: collector.statistics().frames > 0)
        losing, may_lose, follower = threading.Event(), threading.Event(), collector._group._restarts

        def lose(handle, lose=follower._lose):
            losing.set()
            assert may_lose.wait(40)
            lose(handle)

        follower._lose = lose
        os.kill(collector.worker_pid, signal.SIGKILL)
        assert losing.wait(40)
        counts = []

        def pause():
            with collector.pause():
                statistics = collector.statistics()
                counts.append((len(replay.table("t")), statistics.frames, statistics.restarts))

        pausing = threading.Thread(target=pause)
        pausing.start()
        wait_until(collector, lambda: collector._group.status.pause_wanted is not None)
        assert not counts
        may_lose.set()
        pausing.join(40)
    ((items, frames, restarts),) = counts
    assert items == frames
    assert restarts == 1


@pytest.mark.parametrize("phase", ["pause", "start"])
def test_shutdown_while_a_worker_is_away(phase, tmp_path, monkeypatch):
    # CQ7: at once, where a worker that does not end takes 10 s; nothing is left, and no error: the worker was about to
    # come back.
    blocked = tmp_path / "blocked"
    if phase == "pause":  # It has no end.
        monkeypatch.setattr(restarts_module, "SYSTEM_CLOCK", FakeClock())

    def build():
        while blocked.exists():
            time.sleep(0.01)
        return CounterEnv(5)

    collector = hr.MultiCollector(build, sync=True, num_workers=2, frames_per_batch=8)
    blocked.touch()
    os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
    wait_until(collector, lambda: collector._group.status.workers[0].is_restarting)
    while (
        phase == "start" and collector._group.handles[0].peer.ready is not None
    ):  # Until its new process is there.
        threading.Event().wait(0.001)
    begin = time.monotonic()
    collector.shutdown()
    assert time.monotonic() - begin < 7
    assert not [each for each in threading.enumerate() if each.name == "headrace-worker-end"]


def test_without_restarts_the_first_death_is_raised():
    with hr.MultiCollector(
        lambda: CounterEnv(5), sync=True, num_workers=2, frames_per_batch=8, restart_workers=False
    ) as collector:
        collector.next(timeout=40)
        kill(collector, 1)
        with pytest.raises(hr.WorkerDied, match="worker 1"):
            collector.next(timeout=40)
        assert collector.statistics().restarts == 0


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"max_restarts": -1}),
        (ValueError, {"max_restarts": 1.5}),
        (TypeError, {"restart_workers": 1}),
    ],
)
def test_arguments(error, arguments):
    with pytest.raises(error, match=next(iter(arguments))):
        hr.MultiCollector(lambda: CounterEnv(5), sync=True, frames_per_batch=8, **arguments)


@pytest.mark.usefixtures("watch_clocks")  # worker_timeout is of the place alone: a busy worker is not killed.
def test_synchronous_batches_do_not_wait_for_ever_for_a_worker_without_a_place(monkeypatch):
    # CY3: after worker_timeout its rows are masked, until it is there again.
    has_place = threading.Event()
    has_place.set()
    monkeypatch.setattr(WorkerProcess, "is_waiting", property(lambda _: not has_place.is_set()))
    with hr.MultiCollector(
        lambda: CounterEnv(7),
        sync=True,
        num_workers=2,
        num_envs=2,
        frames_per_batch=24,
        worker_timeout=2.0,
    ) as collector:
        assert collector.next(timeout=40).mask.all()
        has_place.clear()
        os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
        masked = [collector.next(timeout=40) for _ in range(3)]
        statistics = collector.statistics()
        assert statistics.restarts == 1
        has_place.set()
        status = collector._group.status
        with status.changed:
            assert status.changed.wait_for(lambda: not status.workers[0].is_restarting, 40)
        whole = [collector.next(timeout=40) for _ in range(2)]
    # The first one of these may have been complete before the kill.
    for batch in masked[1:]:
        assert batch.mask.tolist() == [[False] * 6] * 2 + [[True] * 6] * 2
        assert (batch["episode_id"][:2] == -1).all()
        assert not batch["observation"][:2].any()
    for batch in whole:
        assert batch.mask.all()
        check_rows(batch)
    assert (whole[0]["t"][:2, 0] == 0).all()
    assert statistics.frames == 24 + masked[0].frames + 2 * 12
    ids = [batch["episode_id"][batch.mask] for batch in [*masked, *whole]]
    assert not set(np.unique(whole[0]["episode_id"][:2])) & set(np.concatenate(ids[:3]))


def test_cx9_a_finalizer_may_run_where_the_thread_of_an_end_begins(monkeypatch, take):
    # CX2: a shutdown in another thread met a thread that had not begun: "cannot join thread before it is started".
    begin, met = threading.Thread.start, []

    def interrupted(thread):
        if thread.name == "headrace-worker-end":
            collector._group._restarts.join()
            met.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with hr.AsyncCollector(lambda: CounterEnv(5), frames_per_batch=10) as collector:
        take(collector, 1)
        os.kill(collector.worker_pid, signal.SIGKILL)
        while not collector.statistics().restarts:
            take(collector, 1)
    assert met
