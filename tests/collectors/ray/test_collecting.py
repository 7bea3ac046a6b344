"""Collectors whose workers are Ray actors: rows, weights, questions, ends."""

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.ray.channels import CollectorEnd
from headrace.testing import CounterEnv, counter_env_fns, in_turn
from headrace.testing.envpools import CounterEnvPool

cloudpickle.register_pickle_by_value(sys.modules[__name__])
pytestmark = [pytest.mark.usefixtures("cluster"), pytest.mark.timeout(180)]

LENGTHS = [3, 5, 4, 7]
RAY = {"backend": "ray", "backend_options": {"num_cpus": 1}}


def by_worker(lengths, workers):
    fns = counter_env_fns(lengths)
    n = len(fns) // workers
    return [in_turn(fns[w * n : (w + 1) * n]) for w in range(workers)]


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


def test_a_synchronous_batch_has_the_rows_of_all_actors(counters, take):
    # CY1, CB1, CB4, CB5: as for processes. Pages end inside of episodes, at their ends, and after resets.
    options = {"frames_per_batch": 40, "num_envs": 2, **RAY}
    with hr.MultiCollector(by_worker(LENGTHS, 2), act, sync=True, **options) as collector:
        batches = take(collector, 3)
        collector.reset()
        cut = take(collector, 1)[0]
        pids = {worker.pid for worker in collector.statistics().workers}
        ages = [worker.last_step_age for worker in collector.statistics().workers]
        asked = collector.get_distant_attr("worker_idx")
    assert [batch.shape for batch in batches] == [(4, 10)] * 3
    counters(batches, LENGTHS, action=lambda seen: (seen[:, 2] + seen[:, 0]) % 4)
    assert cut["t"][:, 0].tolist() == [0] * 4
    assert len(pids) == 2
    assert 0 not in pids
    assert all(0 <= age < 60 for age in ages)
    assert asked == [0, 1]


class Bias:
    """A policy with weights: it acts with their sum."""

    def __init__(self):
        self.weights = {"bias": np.zeros(3, np.float32)}

    def __call__(self, observation):
        return np.full(len(observation), int(self.weights["bias"].sum()) % 4)

    def state_dict(self):
        return self.weights

    def load_state_dict(self, weights):
        self.weights = weights


def test_an_actor_that_is_killed_is_started_again_with_the_newest_weights(take):
    # CY2, CY3, CX3, CW3, CV2, CB5: one set at a time, from the first row of the next batch; ids are new.
    with hr.MultiCollector(
        [lambda: CounterEnv(4)] * 2, Bias(), sync=True, frames_per_batch=8, seed=1, **RAY
    ) as collector:
        first = take(collector, 1)[0]
        for version in range(1, 4):
            collector.update_policy_weights_(weights={"bias": np.full(3, version, np.float32)})
            batch = take(collector, 1)[0]
            assert (batch["policy_version"] == version).all()
            assert (batch["action"] == 3 * version % 4).all()
        collector.update_policy_weights_(weights={"bias": np.ones(3, np.float32)}, worker_ids=[1])
        batch = take(collector, 1)[0]
        assert batch["action"][:, 0].tolist() == [1, 3]
        os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
        after = take(collector, 2)
        statistics = collector.statistics()
    assert (first["policy_version"] == 0).all()
    assert statistics.restarts == 1
    assert "actor" in statistics.workers[0].last_error
    assert (after[-1]["policy_version"] == [[3], [4]]).all()
    assert (after[-1]["action"] == [[1], [3]]).all()
    ids = [batch["episode_id"] for batch in (first, batch, *after)]
    assert after[-1]["episode_id"][0].min() > max(ids[0].max(), ids[1].max())


def test_an_actor_that_hangs_is_started_again(take, tmp_path, watch_clocks):
    # CX5: a rollout that takes longer than the limit is fine, as long as its steps do not.
    hung, may_run = tmp_path / "hung", tmp_path / "may_run"

    class Slow(CounterEnv):
        def step(self, action):
            if not may_run.exists():
                time.sleep(0.02)
            if self.step_count == 490 and not hung.exists():
                hung.touch()
                threading.Event().wait()
            return super().step(action)

    with (
        hr.MultiCollector(
            lambda: Slow(1000), sync=True, frames_per_batch=400, worker_timeout=3, **RAY
        ) as collector,
        ThreadPoolExecutor(1) as threads,
    ):
        (handle,) = collector._group.handles
        taking = threads.submit(take, collector, 1)
        for _ in range(2):  # An actor reports its steps once a second.
            taken = handle.last_step.taken
            while handle.last_step.taken == taken and not taking.done():
                time.sleep(0.01)
            watch_clocks.move(2)
        may_run.touch()
        (first,) = taking.result(40)
        watch_clocks.runs = lambda: hung.exists() and not collector.statistics().restarts
        (second,) = take(collector, 1)
        assert first["t"][0].tolist() == list(range(400))
        assert second["t"][0].tolist() == list(range(400))
        assert collector.statistics().restarts == 1
        assert "worker_timeout=3" in collector.statistics().workers[0].last_error


def test_actors_fill_a_replay(make_replay):
    # CY2, CF4, CF6: rows go behind their commits, with the observations that follow them.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    options = {"frames_per_batch": 20, "num_envs": 2, "replay_buffer": replay, "total_frames": 200, **RAY}
    with hr.MultiCollector(by_worker(LENGTHS, 2), act, sync=False, **options) as collector:
        collector.start()
        sample = replay.sample("t", 100, timeout=40, views=hr.views.transition())
        with collector.pause():
            size = len(replay.table("t"))
            assert len(replay.table("t")) == size
    data = sample.data
    step = data["observation"][:, 2]
    np.testing.assert_array_equal(data["next_observation"][:, 2], step + 1)
    np.testing.assert_array_equal(data["reward"], 4 * step + data["action"])
    lengths = np.array(LENGTHS)[data["observation"][:, 0]]
    np.testing.assert_array_equal(data["discount"] == 0, step + 1 == lengths)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"backend": "threads"}, ValueError, "'process' or 'ray'"),
        ({"backend_options": {}}, ValueError, "backend_options"),
        ({"backend": "ray", "backend_options": {"cpus": 1}}, TypeError, "num_cpus"),
        ({"backend": "ray", "backend_options": {"num_cpus": -1}}, ValueError, "num_cpus"),
        ({"backend": "ray", "backend_options": {"scheduling": "even"}}, ValueError, "spread"),
        ({"backend": "ray", "backend_options": {"address": "10.1.1.1:1"}}, ValueError, "10.1.1.1"),
    ],
)
def test_wrong_options_are_refused(options, error, text):
    # CY1, CR13
    with pytest.raises(error, match=text):
        hr.MultiCollector(lambda: CounterEnv(3), sync=True, frames_per_batch=4, **options)


def test_an_exception_while_an_actor_builds_its_environment_is_raised():
    # CX4
    def broken():
        raise OverflowError("no such level")

    with pytest.raises(OverflowError, match="no such level"):
        hr.MultiCollector(broken, sync=True, frames_per_batch=4, **RAY)


def test_actors_fill_a_replay_behind_a_server():
    # CF1, CF2, CY1: the learner's process sends the rows on; each transition is there once.
    signature = hr.collectors.signature(lambda: CounterEnv(3))
    with (
        hr.Replay(signature, [hr.Table.queue("t", 10_000)]) as replay,
        hr.Server({"r": replay}) as server,
        hr.Client(server.address) as client,
        hr.MultiCollector(
            by_worker([10_000] * 4, 2),
            sync=True,
            frames_per_batch=40,
            num_envs=2,
            replay_buffer=client.replay("r"),
            **RAY,
        ) as collector,
    ):
        for _ in range(3):
            collector.next(timeout=40)
        collector.shutdown()
        data = replay.sample("t", len(replay.table("t")), views=hr.views.transition(), timeout=0).data
    for copy in range(4):
        steps = data["observation"][data["observation"][:, 0] == copy][:, 2]
        assert sorted(steps.tolist()) == list(range(30))


def test_a_state_of_actors_within_a_rollout(take, tmp_path):
    # CQ1, CQ3: as for processes. CY1: the options of the actor. Its steps are slow until there is a state.
    may_run = tmp_path / "may_run"

    class Slow(CounterEnv):
        def step(self, action):
            if not may_run.exists():
                time.sleep(0.02)
            return super().step(action)

    runtime_env = {"env_vars": {"EPISODE_LENGTH": "7"}}
    options = {"num_cpus": 1, "scheduling": "pack", "runtime_env": runtime_env}
    with hr.AsyncCollector(
        lambda: Slow(int(os.environ["EPISODE_LENGTH"])),
        act,
        frames_per_batch=3000,
        backend="ray",
        backend_options=options,
    ) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0)
        state = collector.state_dict()
        while state["worker0"]["rollout"] is None or state["worker0"]["rollout"]["left"] == 3000:
            state = collector.state_dict()
        may_run.touch()
        expected = take(collector, 2)
        collector.load_state_dict(state)
        found = take(collector, 2)
    assert expected[0]["t"].max() == 6
    for batch, other in zip(expected, found, strict=True):
        for name in batch:
            np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


def test_an_asynchronous_pool_in_an_actor(take):
    # CE2: as in this process, stepped all at once.
    options = {"frames_per_batch": 42}
    with hr.AsyncCollector(partial(CounterEnvPool, [3, 5, 2], batch_size=2), act, **options, **RAY) as actor:
        found = take(actor, 3)
    with hr.Collector(CounterEnvPool([3, 5, 2]), act, **options) as collector:
        expected = take(collector, 3)
    for batch, other in zip(found, expected, strict=True):
        for name in set(batch) - {"policy_version"}:
            np.testing.assert_array_equal(batch[name], other[name], err_msg=name)


def plasma_mappings():
    """The address ranges in which this process maps Ray's object store."""
    with open("/proc/self/maps") as maps:
        lines = [line.split() for line in maps if "plasma" in line]
    return [tuple(int(end, 16) for end in line[0].split("-")) for line in lines]


def test_large_rollouts_are_read_in_place_in_the_object_store(take, monkeypatch):
    # CY2: one reference of raw buffers each; also the last one of a worker that ends right behind it.
    places = []

    class Frames(CounterEnv):
        def __init__(self):
            super().__init__(7)
            self.observation_space = gym.spaces.Box(0, 255, (1 << 19,), np.uint8)

        def reset(self, **options):
            seen, info = super().reset(**options)
            return self.frame(seen), info

        def step(self, action):
            seen, *others = super().step(action)
            if self.episode == 6:  # Right behind the second rollout.
                raise RuntimeError("an end")
            return self.frame(seen), *others

        @staticmethod
        def frame(seen):
            return np.resize(np.uint8([seen[2] + 1, 3]), 1 << 19)

    def noting(connection):
        frame = next_frame(connection)
        if frame is not None and len(frame.payload) > 1 << 20:
            array = np.frombuffer(frame.payload, np.uint8)
            places.append((array.ctypes.data, array.flags.writeable))
            assert any(low <= array.ctypes.data < high for low, high in plasma_mappings())
        return frame

    next_frame = CollectorEnd.next_frame
    monkeypatch.setattr(CollectorEnd, "next_frame", noting)
    options = {"frames_per_batch": 21, "restart_workers": False, **RAY}
    with hr.AsyncCollector(Frames, lambda seen: np.zeros(len(seen), int), **options) as collector:
        batches = take(collector, 2)
        with pytest.raises(hr.WorkerDied, match="an end"):
            take(collector, 9)
    assert len(places) >= 2
    assert not any(writeable for _, writeable in places)
    for batch in batches:
        t = batch["t"][0]
        np.testing.assert_array_equal(batch["observation"][0, :, 0], t + 1)
        np.testing.assert_array_equal(batch["next_observation"][0, :, 0], t + 2)
        assert (batch["observation"][0, :, 1] == 3).all()


def test_steps_of_an_actor_that_fails_count_as_lost(take):
    # CX3: its number of steps comes before the exception.
    class Fails(CounterEnv):
        def __init__(self):
            super().__init__(100)
            self.steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == 14:
                raise RuntimeError("an end")
            return super().step(action)

    with hr.AsyncCollector(Fails, act, frames_per_batch=10, restart_workers=False, **RAY) as collector:
        take(collector, 1)
        with pytest.raises(hr.WorkerDied, match="an end"):
            take(collector, 2)
        assert collector.statistics().frames_discarded == 3
