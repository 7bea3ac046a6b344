"""Synchronous batches that wait for some of the workers (CR12)."""

import os
import sys
import threading

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.collectors.multi import group
from headrace.testing import CounterEnv, counter_transitions, counter_vector_env
from headrace.testing.agents import CounterAgents

cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Gate:
    """Two named pipes: a worker tells that it has come, and waits until it is let through."""

    def __init__(self, folder, name="slow"):
        self.came, self.opened = folder / f"{name} came", folder / f"{name} opened"
        self.ends = []

    def make(self):
        for path in (self.came, self.opened):
            os.mkfifo(path)
            self.ends.append(os.open(path, os.O_RDWR))
        return self

    def pass_through(self):
        with open(self.came, "wb", buffering=0) as came, open(self.opened, "rb", buffering=0) as opened:
            came.write(b"x")
            opened.read(1)

    def wait(self):
        os.read(self.ends[0], 1)

    def open(self):
        os.write(self.ends[1], b"x")

    def close(self):
        for end in self.ends:
            os.close(end)


@pytest.fixture
def gate(tmp_path):
    gate = Gate(tmp_path).make()
    yield gate
    gate.close()


@pytest.fixture
def start(tmp_path):
    """The gate of the others."""
    gate = Gate(tmp_path, "fast").make()
    yield gate
    gate.close()


class Gated(CounterEnv):
    """Waits at the gate in some of its steps, counted from 0 over all episodes."""

    def __init__(self, length, folder, at, gate="slow", **options):
        super().__init__(length, **options)
        self.folder, self.at, self.gate, self.steps = folder, at, gate, 0

    def step(self, action):
        self.steps += 1
        if self.steps - 1 in self.at:
            Gate(self.folder, self.gate).pass_through()
        return super().step(action)


def fast(folder):
    """An environment of the others: its first step waits until the slow ones stand at their gate."""
    return lambda: Gated(7, folder, (0,), "fast")


def begin(collector):
    """Asks for a batch, which is late."""
    with pytest.raises(hr.DeadlineExceeded):
        collector.next(timeout=0.01)


def let_others_finish(collector, gate, start, slow=1, others=1):
    """Waits until the slow workers stand at the gate; then lets the others begin, and waits for their rollouts."""
    for _ in range(slow):
        gate.wait()
    for _ in range(others):
        start.open()
    collection = collector._group.collection
    status = collector._group.status
    with status.changed:
        assert status.changed.wait_for(lambda: collection._has_enough_workers, 40)
    # Answered after the last rollout was processed, and with it the message to the slow worker sent.
    collector.getattr_env("step_count")


def cut(collector, gate, start):
    """Asks for a batch, and lets the slow worker go on when the other one has finished its rollout."""
    begin(collector)
    let_others_finish(collector, gate, start)
    gate.open()


def check_slow(batches, worker, num_steps, lengths):
    """The rows of a worker go on over the batches, which have these numbers of its steps."""
    row = np.concatenate(
        [batch["observation"][worker, :n] for batch, n in zip(batches, num_steps, strict=True)]
    )
    known = counter_transitions(lengths, len(row))
    np.testing.assert_array_equal(row[:, 1], known["episode"])
    np.testing.assert_array_equal(row[:, 2], known["step"])
    ids = np.concatenate([b["episode_id"][worker, :n] for b, n in zip(batches, num_steps, strict=True)])
    assert len(np.unique(ids)) == known["episode"][-1] + 1
    for batch, n in zip(batches, num_steps, strict=True):
        np.testing.assert_array_equal(batch["mask"][worker], np.arange(batch.shape[1]) < n)
        np.testing.assert_array_equal(
            batch["next_observation"][worker, :n], batch["observation"][worker, :n] + [0, 0, 1]
        )
        for name, column in batch.items():
            assert (column[worker, n:] == (-1 if name == "episode_id" else 0)).all(), name


@pytest.mark.parametrize(("threshold", "workers", "enough"), [(0.0, 2, 1), (0.5, 3, 1), (0.7, 3, 2)])
def test_the_others_stop_after_their_next_step(gate, start, tmp_path, threshold, workers, enough):
    # CR12: max(1, floor(p * W)) workers are enough; missing rows are masked and not counted; episodes go on.
    slow = workers - 1
    envs = [fast(tmp_path)] * enough + [lambda: Gated(7, tmp_path, (4,))] * (workers - enough)
    with hr.MultiCollector(
        envs, sync=True, frames_per_batch=10 * workers, preemptive_threshold=threshold
    ) as collector:
        begin(collector)
        let_others_finish(collector, gate, start, workers - enough, enough)
        for _ in range(workers - enough):
            gate.open()
        batches = [collector.next(timeout=40)]
        assert batches[0].shape == (workers, 10)
        # Four steps, the one that was under way, and the next one.
        assert batches[0].frames == 10 * enough + 6 * (workers - enough)
        assert collector.statistics().frames == batches[0].frames
        batches += [collector.next(timeout=40) for _ in range(3)]
        steps = [int(batch["mask"][slow].sum()) for batch in batches]
        assert steps[0] == 6
        assert all(1 <= each <= 10 for each in steps)
        assert all(batch["mask"].all(1).sum() >= enough for batch in batches)
        check_slow(batches, slow, steps, 7)
        assert collector.statistics().frames == sum(batch.frames for batch in batches)
        assert collector.statistics().frames_discarded == 0


def test_at_least_one_step_each(gate, start, tmp_path):
    # CR12: also where the message comes before the first step.
    envs = [fast(tmp_path), lambda: Gated(7, tmp_path, (0,))]
    with hr.MultiCollector(envs, sync=True, frames_per_batch=20, preemptive_threshold=0.5) as collector:
        cut(collector, gate, start)
        assert collector.next(timeout=40)["mask"][1].sum() == 2
        for _ in range(20):
            assert collector.next(timeout=40)["mask"][:, 0].all()


@pytest.mark.parametrize("threshold", [None, 1, 1.0])
def test_off(gate, tmp_path, threshold):
    # CR12: None and 1.0 wait for all.
    envs = [lambda: Gated(7, tmp_path, ()), lambda: Gated(7, tmp_path, (4,))]
    with hr.MultiCollector(envs, sync=True, frames_per_batch=20, preemptive_threshold=threshold) as collector:
        begin(collector)
        gate.wait()
        gate.open()
        assert collector.next(timeout=40).frames == 20


def gated_agents(folder, lengths, at, gate="slow"):
    """Agents that wait at the gate in one of their steps, counted from 0 over all episodes."""
    env = CounterAgents(lengths)
    step, env.steps, env.step_count = env.step, 0, 0

    def gated(actions):
        env.steps += 1
        if env.steps - 1 == at:
            Gate(folder, gate).pass_through()
        return step(actions)

    env.step = gated
    return env


def test_set_truncated_of_agents(gate, start, tmp_path):
    # CR8, CR12: the last transition of each agent that the rollout has; one of them ended before.
    with hr.MultiCollector(
        [lambda: gated_agents(tmp_path, [3, 12], 0, "fast"), lambda: gated_agents(tmp_path, [3, 12], 4)],
        sync=True,
        frames_per_batch=40,
        set_truncated=True,
        preemptive_threshold=0.5,
    ) as collector:
        cut(collector, gate, start)
        batch = collector.next(timeout=40)
    assert batch["mask"].sum(1).tolist() == [3, 10, 3, 6]
    assert np.argwhere(batch["truncated"]).tolist() == [[0, 2], [1, 9], [2, 2], [3, 5]]
    assert np.argwhere(batch["terminated"]).tolist() == [[0, 2], [2, 2]]


@pytest.mark.parametrize(("autoreset", "steps"), [("DISABLED", 6), ("SAME_STEP", 6), ("NEXT_STEP", 7)])
@pytest.mark.parametrize("lengths", [[3, 6], [4, 5]])
def test_set_truncated(gate, start, tmp_path, autoreset, steps, lengths):
    # CR8, CR12: the last transition of each copy that the rollout has. Where a reset may take the last step, two more
    # steps are taken: the one before it can be marked.
    def waiting(at, gate):
        env = counter_vector_env(lengths, autoreset)
        step, env.steps = env.step, 0

        def gated(actions):
            env.steps += 1
            if env.steps - 1 == at:
                Gate(tmp_path, gate).pass_through()
            return step(actions)

        env.step = gated
        return env

    with hr.MultiCollector(
        [lambda: waiting(0, "fast"), lambda: waiting(4, "slow")],
        sync=True,
        frames_per_batch=48,
        set_truncated=True,
        preemptive_threshold=0.5,
    ) as collector:
        cut(collector, gate, start)
        batch = collector.next(timeout=40)
    assert batch.shape == (4, 12)
    mask = batch["mask"][2:]
    assert not mask[:, steps:].any()
    for copy in range(2):
        last = np.flatnonzero(mask[copy])[-1]
        assert last >= steps - 2
        found = np.flatnonzero(batch["truncated"][2 + copy])
        np.testing.assert_array_equal(found, [last])


def test_a_worker_that_begins_again_is_preempted_too(gate, start, tmp_path):
    # CR12, CX3.
    class Dying(Gated):
        def step(self, action):
            if self.steps == 4 and not (self.folder / "died").exists():
                (self.folder / "died").touch()
                Gate(self.folder).pass_through()
                os._exit(3)
            return super().step(action)

    envs = [fast(tmp_path), lambda: Dying(7, tmp_path, ())]
    with hr.MultiCollector(envs, sync=True, frames_per_batch=2000, preemptive_threshold=0.5) as collector:
        cut(collector, gate, start)
        batch = collector.next(timeout=40)
        assert batch["mask"][0].all()
        assert 1 <= batch["mask"][1].sum() < 1000
        assert collector.statistics().restarts == 1


def test_the_hook_sees_the_shorter_rollout(gate, start, tmp_path):
    # CH1, CR12.
    class Check:
        def __call__(self, batch):
            (valid,) = np.nonzero(batch["mask"][0])
            shift = batch["observation"][0, valid] + [0, 0, 1]
            if not (batch["next_observation"][0, valid] == shift).all():
                raise AssertionError(batch["next_observation"][0])

    envs = [fast(tmp_path), lambda: Gated(7, tmp_path, (4,))]
    with hr.MultiCollector(
        envs, sync=True, frames_per_batch=20, preemptive_threshold=0.5, max_restarts=0
    ) as collector:
        collector.post_collect_hook = Check()
        cut(collector, gate, start)
        for _ in range(4):
            assert collector.next(timeout=40)["mask"].any(1).all()


def test_into_a_replay(gate, start, tmp_path, make_replay):
    # CR12, CF3: only the steps that were taken are written.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(7)))
    envs = [fast(tmp_path), lambda: Gated(7, tmp_path, (4,))]
    with hr.MultiCollector(
        envs, sync=True, frames_per_batch=20, preemptive_threshold=0.5, replay_buffer=replay
    ) as collector:
        cut(collector, gate, start)
        frames = sum(collector.next(timeout=40).frames for _ in range(3))
    assert len(replay.table("t")) == frames


@pytest.mark.parametrize(
    ("told", "arguments"),
    [
        ("from 0 to 1", {"preemptive_threshold": -0.1}),
        ("from 0 to 1", {"preemptive_threshold": 1.1}),
        ("from 0 to 1", {"preemptive_threshold": float("nan")}),
        ("from 0 to 1", {"preemptive_threshold": "0.5"}),
        ("from 0 to 1", {"preemptive_threshold": True}),
        ("sync=False", {"preemptive_threshold": 0.5, "sync": False}),
    ],
)
def test_arguments(told, arguments):
    # CR12, CR13.
    with pytest.raises(ValueError, match=f"preemptive_threshold: .*{told}"):
        hr.MultiCollector(lambda: CounterEnv(3), frames_per_batch=4, **{"sync": True} | arguments)


def scaled(batch):
    assert batch.shape == (1, 10)
    names = ("observation", "next_observation", "reward")
    return batch.with_columns({name: batch[name] * 10 for name in names})


def test_postproc_before_a_replay(gate, start, tmp_path, make_replay):
    # CR10, CR12: postproc is called on [n, T] with masked rows, which are not stored.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    envs = [fast(tmp_path), lambda: Gated(7, tmp_path, (4,))]
    with hr.MultiCollector(
        envs,
        sync=True,
        frames_per_batch=20,
        preemptive_threshold=0.5,
        postproc=scaled,
        replay_buffer=replay,
    ) as collector:
        cut(collector, gate, start)
        batches = [collector.next(timeout=40) for _ in range(6)]
        frames = collector.statistics().frames
    assert batches[0]["mask"].sum(1).tolist() == [10, 6]
    slow = np.concatenate([batch["observation"][1][batch["mask"][1]] for batch in batches])
    known = counter_transitions(7, len(slow))
    np.testing.assert_array_equal(slow[:, 1:], 10 * np.stack([known["episode"], known["step"]], axis=1))
    data = replay.sample("t", 1000, views=hr.views.transition(), timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 10])
    assert len(replay.table("t")) == frames == sum(batch.frames for batch in batches)
    stored = {tuple(row) for row in data["observation"].tolist()}
    assert stored <= {tuple(row) for batch in batches for row in batch.flatten()["observation"].tolist()}


@pytest.mark.parametrize("in_time", [True, False])
@pytest.mark.parametrize("reason", ["postproc", "set_truncated"])
def test_a_shutdown_in_the_middle_of_a_rollout_that_is_written_whole(
    reason, in_time, gate, tmp_path, make_replay, monkeypatch
):
    # CF7, CR8, CR10: it is completed, and its rows are in the replay; what cannot be completed in time is counted.
    end_processes = group.end_processes

    def end(*arguments):
        if not in_time:
            gate.open()
        return end_processes(*arguments)

    monkeypatch.setattr(group, "end_processes", end)
    if not in_time:
        monkeypatch.setattr(group, "_SHARE_TO_FINISH", 0.01)
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)))
    is_scaled = reason == "postproc"
    make, options = lambda: Gated(20, tmp_path, (4,)), {"postproc": scaled}
    if not is_scaled:
        make, options = lambda: gated_agents(tmp_path, [20], 4), {"set_truncated": True}
    with hr.AsyncCollector(make, frames_per_batch=10, replay_buffer=replay, **options) as collector:
        collector.start()
        gate.wait()
        shutdown = threading.Thread(target=collector.async_shutdown)
        shutdown.start()
        if in_time:
            status = collector._group.status
            with status.changed:
                assert status.changed.wait_for(lambda: status.pause_wanted is not None, 40)
            gate.open()
        shutdown.join()
        statistics = collector.statistics()
    assert (statistics.frames, statistics.frames_discarded) == ((10, 0) if in_time else (0, 5))
    assert len(replay.table("t")) == statistics.frames
    if in_time:
        data = replay.sample("t", 100, views=hr.views.transition(), timeout=0).data
        scale = 10 if is_scaled else 1
        assert {row[2] for row in data["observation"].tolist()} == set(range(0, 10 * scale, scale))
