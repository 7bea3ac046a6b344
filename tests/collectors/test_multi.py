"""Several workers: shapes, layouts, sizes, seeds, ends, and pauses."""

import os
import signal
import sys
import threading
import time
from functools import partial

import cloudpickle
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.handle.group_status import GroupStatus
from headrace.leases.selector import PEERS
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LENGTHS = [3, 5, 4, 7]
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


def by_worker(lengths, workers):
    """One callable for each worker; copy i of worker w is environment w * n + i."""
    fns = counter_env_fns(lengths)
    n = len(fns) // workers
    return [in_turn(fns[w * n : (w + 1) * n]) for w in range(workers)]


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


def equal_rows(one, other, but=()):
    assert list(one) == list(other)
    for name in one:
        if name not in but:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


# ---- synchronous ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_synchronous_batch_has_the_rows_of_all_workers(counters, take, workers):
    # CB1, CB5, CR2: worker by worker; episodes are numbered as inline.
    options = {"frames_per_batch": 40, "num_envs": 4 // workers}
    with hr.MultiCollector(by_worker(LENGTHS, workers), act, sync=True, **options) as collector:
        batches = take(collector, 3)
    assert [batch.shape for batch in batches] == [(4, 10)] * 3
    assert batches[0].worker_idx is None
    counters(batches, LENGTHS, action=lambda seen: (seen[:, 2] + seen[:, 0]) % 4)


def test_a_worker_is_not_woken_between_two_synchronous_batches(take):
    """Answers to its commits wait for the message that lets it go on."""
    with hr.MultiCollector(
        by_worker(LENGTHS, 2), act, sync=True, frames_per_batch=40, num_envs=2
    ) as collector:
        channels = [handle.peer.channel for handle in collector._group.handles]
        for _ in range(3):
            take(collector, 1)
            assert all(channel._held for channel in channels)


@given(
    workers=st.integers(1, 3),
    num_envs=st.integers(1, 3),
    frames=st.integers(1, 30),
    random_frames=st.integers(0, 40),
    limit=st.sampled_from([None, 4]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.timeout(200)
def test_the_layout_does_not_matter(recwarn, workers, num_envs, frames, random_frames, limit, seed):
    # CS1, CS4, CS5, CR1, CR2, CR4: all columns, and here the numbers of episodes too.
    options = {"init_random_frames": random_frames, "max_frames_per_traj": limit, "seed": seed}
    each = -(-frames // workers)
    steps = -(-each // num_envs)
    lanes = workers * num_envs
    inline = hr.Collector("CartPole-v1", balance, frames_per_batch=steps * lanes, num_envs=lanes, **options)
    several = hr.MultiCollector(
        "CartPole-v1",
        balance,
        sync=True,
        num_workers=workers,
        frames_per_batch=frames,
        num_envs=num_envs,
        **options,
    )
    with inline, several:
        for _ in range(4):
            one, other = inline.next(), several.next(timeout=40)
            assert other.shape == (lanes, steps)
            equal_rows(one, other)


def balance(observation):
    return (observation[:, 2] > 0).astype(int)


def test_the_same_seed_gives_the_same_batches(take):
    # CS1, CS5, CS2: also by set_seed, which resets once more; the arguments of CS1.
    def batches(**options):
        with hr.MultiCollector(
            "CartPole-v1", sync=True, num_workers=3, num_envs=2, frames_per_batch=30, **options
        ) as collector:
            if not options:
                assert collector.set_seed(1) == 6
                assert collector.set_seed(1, static_seed=True) == 1
                assert collector.set_seed(5) == 10
            return take(collector, 3)

    one, two, three = batches(seed=5), batches(seed=5), batches()
    for first, second, third in zip(one, two, three, strict=True):
        equal_rows(first, second)
        equal_rows(first, third, but=["episode_id"])


def test_global_generators_differ_by_worker(take):
    # CS3.
    class Drawing(CounterEnv):
        def reset(self, **options):
            self.drawn = int(np.random.randint(1, 2**31))  # noqa: NPY002
            return super().reset(**options)

        def step(self, action):
            _, _, *rest = super().step(action)
            return np.array([0, 0, 0]), float(self.drawn % 65536), *rest

    with hr.MultiCollector(
        lambda: Drawing(2), sync=True, num_workers=3, frames_per_batch=12, seed=3
    ) as collector:
        first = take(collector, 1)[0]
    for worker in range(3):
        assert len(set(first["reward"][worker].tolist())) == 2
    assert len(set(first["reward"].ravel().tolist())) == 6


@pytest.mark.parametrize("when", ["making", "asked"])
def test_torch_is_seeded_whenever_it_is_imported(when, tmp_path, monkeypatch):
    # CS3: with one seed for each worker, also where an environment imports torch in the middle of the collection.
    (tmp_path / "torch.py").write_text("seeds = []\nmanual_seed = seeds.append\nclass Tensor:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    class Late(CounterEnv):
        def __init__(self):
            super().__init__(3)
            if when == "making":
                self.ask()

        def ask(self):
            import torch

            return torch.seeds

    with hr.MultiCollector(Late, sync=True, num_workers=2, frames_per_batch=4, seed=3) as collector:
        one, other = collector.map_fn("env.unwrapped.ask")
        collector.set_seed(3)
        collector.next(timeout=40)
        again = collector.map_fn("env.unwrapped.ask")
    assert len(one) == len(other) == 1
    assert one != other
    assert again == [2 * one, 2 * other]


def test_sizes_that_differ(counters, take):
    # CR2: the longest T, masked rows; what is masked is not counted, and no row is lost.
    options = {"frames_per_batch": [6, 2, 8], "num_envs": 2, "total_frames": 32}
    lengths = [3, 5, 4, 7, 2, 6]
    with hr.MultiCollector(by_worker(lengths, 3), act, sync=True, **options) as collector:
        assert len(collector) == 2
        batches = list(collector)
        statistics = collector.statistics()
    assert [batch.shape for batch in batches] == [(6, 4)] * 2
    assert [batch.frames for batch in batches] == [16, 16]
    assert batches[0]["mask"].sum(1).tolist() == [3, 3, 1, 1, 4, 4]
    assert (statistics.frames, statistics.batches) == (32, 2)
    assert [(worker.frames, worker.rollouts) for worker in statistics.workers] == [(12, 2), (4, 2), (16, 2)]
    counters(batches, lengths)


def test_views_look_over_masked_rows(take):
    # CB9, CR2: the row before a batch's first is the last valid one of the batch before.
    with hr.MultiCollector(
        [lambda: CounterEnv(50)] * 2,
        sync=True,
        frames_per_batch=[2, 4],
        views={"before": hr.View("reward", shift=-1, fill=-1.0)},
    ) as collector:
        batches = take(collector, 3)
    for worker in range(2):
        rows = [
            np.concatenate([b[name][worker][b["mask"][worker]] for b in batches])
            for name in ("reward", "before")
        ]
        np.testing.assert_array_equal(rows[1], [-1.0, *rows[0][:-1]])


def test_rounding_up_is_told(take):
    # CR2: B = 15 on two workers of one environment is [2, 8].
    fns = [lambda: CounterEnv(3)] * 2
    with pytest.warns(UserWarning, match=r"15 .* 2 environments: .* 16 frames") as told:
        collector = hr.MultiCollector(fns, sync=True, frames_per_batch=15, total_frames=30)
    with collector:
        assert [batch.shape for batch in collector] == [(2, 8), (2, 8)]
        assert collector.statistics().frames == 32
    assert len(told) == 1
    assert told[0].filename == __file__


def test_a_synchronous_batch_is_the_users_own(take):
    # CB8: writable, never changed afterwards, and it outlives the collector.
    with hr.MultiCollector(
        lambda: CounterEnv(4), sync=True, num_workers=2, frames_per_batch=20, num_envs=2
    ) as collector:
        first = take(collector, 1)[0]
        kept = {name: np.array(first[name]) for name in first}
        take(collector, 20)
    for name, column in first.items():
        assert column.flags.writeable
        assert column.base is None or column.base.base is None
        np.testing.assert_array_equal(column, kept[name])
        column[...] = 0


def test_nothing_is_collected_before_a_batch_is_asked_for(take):
    # The workers are started together by each request.
    with hr.MultiCollector(lambda: CounterEnv(4), sync=True, num_workers=2, frames_per_batch=8) as collector:
        take(collector, 2)
        collector.set_seed(3)
        batch = take(collector, 1)[0]
        assert batch["t"][:, 0].tolist() == [0, 0]
        assert collector.statistics().frames_discarded == 0


def test_a_synchronous_batch_has_one_version(take):
    # CV6, CW3: lag 0, and new weights act from the first row of the next batch.
    policy = hr.FunctionalPolicy(versioned, {"a": np.zeros(())})
    with hr.MultiCollector(
        lambda: CounterEnv(9), policy, sync=True, num_workers=3, frames_per_batch=12
    ) as collector:
        for version in range(6):
            batch = take(collector, 1)[0]
            assert (batch["policy_version"] == version).all()
            assert (batch["action"] == version % 4).all()
            collector.update_policy_weights_(weights={"a": np.array(float((version + 1) % 4))})
        statistics = collector.statistics()
    assert (statistics.lag_min, statistics.lag_max) == (0, 0)
    assert [worker.policy_version for worker in statistics.workers] == [5, 5, 5]


def versioned(params, observation):
    return np.full(len(observation), int(params["a"]))


class Gated(CounterEnv):
    """Its first step waits until a byte is written to a named pipe."""

    def __init__(self, length, gate):
        super().__init__(length)
        self.gate = gate

    def step(self, action):
        if self.gate is not None:
            with open(self.gate, "rb", buffering=0) as opened:
                opened.read(1)
            self.gate = None
        return super().step(action)


@pytest.fixture
def gate(tmp_path):
    """The path of a named pipe, and a function that lets one environment through."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    end = os.open(path, os.O_RDWR)
    yield path, lambda: os.write(end, b"x")
    os.close(end)


def test_a_batch_that_comes_late_is_the_next_one(take, gate):
    # CB10: nothing is lost.
    path, let_through = gate
    with hr.MultiCollector(
        [lambda: CounterEnv(9), lambda: Gated(9, path)], sync=True, frames_per_batch=8
    ) as collector:
        with pytest.raises(hr.DeadlineExceeded, match="worker 1"):
            collector.next(timeout=0.01)
        let_through()
        batches = take(collector, 2)
    assert [batch["t"][:, 0].tolist() for batch in batches] == [[0, 0], [4, 4]]


def test_weights_of_a_batch_that_comes_late_are_the_newest_that_it_could_have(gate):
    # CV2, CV6, CW3: rows keep the version that acted; new weights count from the next batch, so the lag is 0.
    path, let_through = gate
    policy = hr.FunctionalPolicy(versioned, {"a": np.zeros(())})
    envs = [lambda: CounterEnv(9), lambda: Gated(9, path)]
    with hr.MultiCollector(
        envs, policy, sync=True, frames_per_batch=8, track_policy_version=True
    ) as collector:
        with pytest.raises(hr.DeadlineExceeded):
            collector.next(timeout=0.01)
        collector.update_policy_weights_(weights={"a": np.ones(())})
        assert collector.policy_version == 1
        let_through()
        for version in range(2):
            batch = collector.next(timeout=40)
            assert (batch["policy_version"] == version).all()
            assert (batch["action"] == version).all()
            statistics = collector.statistics()
            assert (statistics.lag_min, statistics.lag_mean, statistics.lag_max) == (0, 0, 0)
        assert statistics.lag_histogram == {0: 16}


def test_columns_of_the_policy_come_after_random_rollouts(take):
    # CP3, CR4: in all workers with the same batch.
    def policy(observation):
        return act(observation), {"value": observation[:, 2].astype(np.float32)}

    with hr.MultiCollector(
        by_worker(LENGTHS, 2), policy, sync=True, frames_per_batch=16, num_envs=2, init_random_frames=17
    ) as collector:
        batches = take(collector, 4)
    assert ["value" in batch for batch in batches] == [False, False, True, True]
    assert (batches[1]["policy_version"] == -1).all()
    np.testing.assert_array_equal(batches[3]["value"], batches[3]["observation"][..., 2])


@pytest.mark.parametrize("autoreset", ["same_step", "next_step", "disabled"])
def test_vector_environments(counters, take, autoreset):
    # CE4.
    halves = [partial(counter_vector_env, LENGTHS[:2], autoreset), partial(second_half, autoreset)]
    with hr.MultiCollector(halves, act, sync=True, frames_per_batch=40) as collector:
        counters(take(collector, 3), LENGTHS)


def second_half(autoreset):
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv(counter_env_fns(LENGTHS)[2:], autoreset_mode=AutoresetMode[autoreset.upper()])


# ---- asynchronous --------------------------------------------------------------------------------------------------


def test_asynchronous_batches_are_of_one_worker(take, rows_by_copy):
    # CB1, CB5, CV7: each worker's rows are whole, and no number of an episode is given twice.
    with hr.MultiCollector(
        by_worker(LENGTHS, 2), act, sync=False, frames_per_batch=12, num_envs=2
    ) as collector:
        batches = take(collector, 30)
    owners = {}
    for worker in range(2):
        mine = [batch for batch in batches if batch.worker_idx == worker]
        assert mine
        for copy, rows in enumerate(rows_by_copy(mine)):
            seen = rows["observation"]
            assert (seen[:, 0] == 2 * worker + copy).all()
            length = LENGTHS[2 * worker + copy]
            np.testing.assert_array_equal(rows["t"], np.arange(len(seen)) % length)
            np.testing.assert_array_equal(seen[:, 1], np.arange(len(seen)) // length)
            assert (np.diff(rows["episode_id"]) >= 0).all()
            for episode in np.unique(rows["episode_id"]).tolist():
                assert owners.setdefault(episode, (worker, copy)) == (worker, copy)


def test_a_fast_worker_starves_no_slow_one(take, gate):
    # CV7: two rollouts a worker at most; the one that waits longest comes first.
    path, let_through = gate
    with hr.MultiCollector(
        [lambda: CounterEnv(4), lambda: Gated(12, path)], sync=False, frames_per_batch=4
    ) as collector:
        collector._group.collection.begin(running=False)
        changed, waiting = collector._group.status.changed, collector._group.collection.batches
        with changed:
            assert changed.wait_for(lambda: len(waiting) == 2, 40)
        let_through()
        with changed:
            assert changed.wait_for(lambda: len(waiting) == 4, 40)
        # No batch is taken, so no fifth rollout is begun. The fast worker's two were complete first.
        assert all(worker.frames == 0 for worker in collector.statistics().workers)
        order = [batch.worker_idx for batch in take(collector, 4)]
    assert sorted(order) == [0, 0, 1, 1]
    assert order[0] == 0


def test_total_frames_of_asynchronous_workers():
    # CR3: the rollouts of all workers together reach it, and no more is begun than is needed.
    with hr.MultiCollector(
        lambda: CounterEnv(3), sync=False, num_workers=3, frames_per_batch=10, total_frames=70
    ) as collector:
        assert len(collector) == 7
        assert len(list(collector)) == 7
        assert collector.next() is None
        statistics = collector.statistics()
    assert sum(worker.rollouts for worker in statistics.workers) == 7
    assert collector.statistics().frames_discarded == 0


@pytest.mark.parametrize(("random_frames", "random"), [(1, 1), (25, 3), (30, 3), (0, 0)])
def test_random_frames_of_asynchronous_workers(random_frames, random):
    # CR4: the closed form ceil(F / B) * B, for any number of workers.
    with hr.MultiCollector(
        lambda: CounterEnv(3),
        act,
        sync=False,
        num_workers=3,
        frames_per_batch=10,
        total_frames=80,
        init_random_frames=random_frames,
    ) as collector:
        versions = [batch["policy_version"] for batch in collector]
    assert sum((each == -1).all() for each in versions) == random
    assert all((each == each[0, 0]).all() for each in versions)


def test_sizes_of_asynchronous_workers(take):
    # CR2: a batch has its worker's size; total_frames is a multiple of the sum.
    with hr.MultiCollector(
        lambda: CounterEnv(3), sync=False, num_workers=2, frames_per_batch=[3, 5]
    ) as collector:
        for batch in take(collector, 12):
            assert batch.shape == (1, [3, 5][batch.worker_idx])


def test_rows_of_several_workers_are_views_of_a_replay(make_replay, rows_by_copy):
    # CF2, CF3: iterated with a replay; each worker has lanes of its own.
    replay = make_replay(SIGNATURE, fifo_table())
    with hr.MultiCollector(
        by_worker(LENGTHS, 2),
        act,
        sync=True,
        frames_per_batch=40,
        num_envs=2,
        total_frames=120,
        replay_buffer=replay,
    ) as collector:
        batches = list(collector)
    check_replay(replay, 120)
    assert sum(batch.frames for batch in batches) == 120


def fifo_table():
    fifo = hr.selectors.Fifo()
    return hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000, max_times_sampled=1)


def check_replay(replay, count):
    """Every transition once, followed by its own next observation."""
    assert len(replay.table("t")) == count
    data = replay.sample("t", count, views=hr.views.transition(), timeout=0).data
    np.testing.assert_array_equal(data["next_observation"], data["observation"] + [0, 0, 1])
    assert len(np.unique(data["observation"], axis=0)) == count
    return data


# ---- free running --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sync", [True, False])
def test_workers_fill_a_replay(make_replay, sync):
    # CF2, CF4, CF5: it ends at total_frames by itself.
    replay = make_replay(SIGNATURE, fifo_table())
    with hr.MultiCollector(
        by_worker(LENGTHS, 2),
        act,
        sync=sync,
        frames_per_batch=40,
        num_envs=2,
        total_frames=240,
        init_random_frames=41,
        replay_buffer=replay,
    ) as collector:
        collector.start()
        wait_until(collector, lambda: not collector.statistics().running)
        statistics = collector.statistics()
    assert statistics.frames == 240
    assert statistics.batches == sum(worker.rollouts for worker in statistics.workers)
    data = check_replay(replay, 240)
    assert set(data["observation"][:, 0].tolist()) == set(range(4))


def wait_until(collector, there):
    with collector._group.status.changed:
        assert collector._group.status.changed.wait_for(there, 40)


def test_a_pause_of_all_workers(make_replay, rows_by_copy):
    # CF6: all stand still, everything collected is in the replay; they go on with the very next step.
    replay = make_replay(SIGNATURE, fifo_table())
    with hr.MultiCollector(
        by_worker([50] * 4, 2), sync=False, frames_per_batch=20, num_envs=2, replay_buffer=replay, seed=0
    ) as collector:
        collector.start()
        for _ in range(5):
            wait_until(
                collector, lambda: all(worker.rollouts > 1 for worker in collector.statistics().workers)
            )
            with collector.pause():
                frames = collector.statistics().frames
                assert collector.statistics().paused
                # One step later for the lanes that are in an episode (CF2).
                assert frames - 4 <= len(replay.table("t")) <= frames
                assert collector.statistics().frames == frames
                with pytest.raises(RuntimeError, match="paused"), collector.pause():
                    pass
            assert not collector.statistics().paused
        collector.async_shutdown()
    data = check_replay(replay, collector.statistics().frames)
    for copy in range(4):
        rows = data["observation"][data["observation"][:, 0] == copy]
        order = np.lexsort((rows[:, 2], rows[:, 1]))
        numbers = rows[order][:, 1] * 50 + rows[order][:, 2]
        np.testing.assert_array_equal(numbers, np.arange(len(rows)))


# ---- arguments and failures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told", "arguments"),
    [
        (TypeError, "sync", {}),
        (TypeError, "sync", {"sync": None}),
        (ValueError, "num_workers", {"sync": True, "num_workers": 0}),
        (ValueError, "list of 3", {"sync": True, "create_env_fn": ["CartPole-v1"] * 2, "num_workers": 3}),
        (ValueError, "empty", {"sync": True, "create_env_fn": []}),
        (ValueError, "one for each worker", {"sync": True, "frames_per_batch": [5, 5]}),
        (ValueError, "one for each worker", {"sync": True, "num_workers": 2, "frames_per_batch": [5, 0]}),
        (
            ValueError,
            "16 or 24",
            {"sync": True, "num_workers": 2, "frames_per_batch": [3, 5], "total_frames": 20},
        ),
        (TypeError, "frames_per_batch", {"sync": True, "frames_per_batch": ...}),
        (TypeError, "unexpected .*'frame_per_batch'", {"sync": True, "frame_per_batch": 5}),
        (TypeError, "lambda", {"sync": True, "create_env_fn": CounterEnv(3)}),
    ],
)
def test_arguments(monkeypatch, error, told, arguments):
    # CR13: before any process starts.
    def never(*_):
        raise AssertionError("a process was started")

    monkeypatch.setattr("headrace.collectors.multi.starting.WorkerProcess", never)
    arguments = {"create_env_fn": lambda: CounterEnv(3), "frames_per_batch": 5} | arguments
    if arguments["frames_per_batch"] is ...:
        del arguments["frames_per_batch"]
    with pytest.raises(error, match=told):
        hr.MultiCollector(**arguments)


def test_an_async_collector_is_one_worker():
    with hr.AsyncCollector([lambda: CounterEnv(3)], sync=False, frames_per_batch=5) as collector:
        assert isinstance(collector, hr.MultiCollector)
        assert len(collector.statistics().workers) == 1
    with pytest.raises(ValueError, match="sync"):
        hr.AsyncCollector(lambda: CounterEnv(3), sync=True, frames_per_batch=5)
    with pytest.raises(ValueError, match="list of 1, one for each worker, got 2"):
        hr.AsyncCollector([lambda: CounterEnv(3)] * 2, frames_per_batch=5)


def test_one_worker_that_cannot_be_built_ends_all():
    # CX4: its own type, the remote traceback, no process left.
    def broken():
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone") as raised:
        hr.MultiCollector(
            [lambda: CounterEnv(3), broken, lambda: CounterEnv(3)], sync=True, frames_per_batch=6
        )
    assert "in broken" in "".join(raised.value.__notes__)


def test_workers_that_are_late_are_named(monkeypatch):
    def late():
        time.sleep(1000)

    wait = GroupStatus.wait_for_none

    def once_worker_0_is_there(status, late, timeout, event):
        status.wait(lambda: len(late()) == 2, 50, lambda: "worker 0")
        wait(status, late, timeout, event)

    monkeypatch.setattr(GroupStatus, "wait_for_none", once_worker_0_is_there)
    with pytest.raises(hr.DeadlineExceeded, match=r"worker 1 .*, worker 2 .* to be ready") as raised:
        hr.MultiCollector(
            [lambda: CounterEnv(3), late, late], sync=True, frames_per_batch=6, start_timeout=0.1
        )
    assert "worker 0" not in str(raised.value)


def test_workers_that_differ_are_refused():
    with pytest.raises(hr.SpecError, match=r"columns .* worker 1"):
        hr.MultiCollector(["CartPole-v1", lambda: CounterEnv(3)], sync=True, frames_per_batch=6)
    vector = partial(counter_vector_env, [3, 4], "disabled")
    with pytest.raises(hr.SpecError, match=r"2 in worker 0 and 1 in worker 1"):
        hr.MultiCollector([vector, lambda: CounterEnv(3)], sync=True, frames_per_batch=6)


@pytest.mark.parametrize("sync", [True, False])
def test_the_worker_that_died_is_named(sync):
    # CX2: the others are still there, and shutdown works.
    with hr.MultiCollector(
        lambda: CounterEnv(3), act, sync=sync, num_workers=3, frames_per_batch=9, restart_workers=False
    ) as collector:
        collector.next(timeout=40)
        victim = collector.statistics().workers[1]
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        with pytest.raises(hr.WorkerDied, match="worker 1 .*SIGKILL") as raised:  # noqa: PT012 - the last call raises
            while True:
                collector.next(timeout=40)
        assert time.monotonic() - killed < 15  # A call waits for 40 s.
        assert (raised.value.worker_idx, raised.value.exitcode) == (1, -signal.SIGKILL)
        assert [worker.alive for worker in collector.statistics().workers] == [True, False, True]
        with pytest.raises(hr.WorkerDied, match="worker 1"):
            collector.set_seed(0)


def test_an_asynchronous_batch_does_not_wait_for_the_thread_that_listens():
    with hr.MultiCollector(counter_env_fns([3]), sync=False, frames_per_batch=4) as collector:
        collector._group.collection.begin(running=False)
        group, opened = collector._group, threading.Event()
        with group.status.changed:
            assert group.status.changed.wait_for(lambda: len(group.collection.batches) == 2, 40)
        held = PEERS.submit(lambda: opened.wait(60))
        collector.next(timeout=40)
        opened.set()
        assert held.result()  # Else `next` came back after the 60 s.
        # What the thread does for the batch is done before anything is said of it.
        statistics = collector.statistics()
        assert statistics.workers[0].rollouts == 1
        assert statistics.workers[0].frames == statistics.frames == 4
        collector.next(timeout=40)
        state = collector.state_dict()
        assert state["collector"]["tally"]["batches"] == 2
        # Two rollouts are waiting, under way or owed, whatever the thread was doing.
        admission = state["collector"]["admission"]
        assert admission["begun"] // 4 - 2 + admission["owed"][0] == 2


@pytest.mark.parametrize("bound", [{"max_staleness": 1}, {"total_frames": 8}])
def test_a_batch_that_others_depend_on_is_settled_when_it_is_returned(bound):
    # CV8: the order of batches depends on it; CF5: nothing follows the last one that could settle it.
    with hr.MultiCollector(counter_env_fns([3]), sync=False, frames_per_batch=4, **bound) as collector:
        for _ in range(2):
            collector.next(timeout=40)
        assert collector._group.collection.batches.is_settled
