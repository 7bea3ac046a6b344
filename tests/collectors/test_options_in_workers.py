"""The options of collection in worker processes, against the model of `test_options` and the inline collector."""

import sys

import cloudpickle
import gymnasium
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LENGTHS = [3, 5]
OPTIONS = [
    {"reset_at_each_iter": True},
    {"set_truncated": True, "max_frames_per_traj": 4},
    {"reset_at_each_iter": True, "reset_when_done": False, "set_truncated": True},
    {"reset_at_each_iter": True, "split_trajs": True, "init_random_frames": 20},
]


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


class UnmaskedVector(gymnasium.vector.VectorEnv):
    """A vector environment of counters that is not known to take a mask."""

    def __init__(self, lengths, mode):
        self._env = counter_vector_env(lengths, mode)
        self.num_envs, self.metadata = self._env.num_envs, self._env.metadata
        for name in ("observation_space", "action_space"):
            setattr(self, name, getattr(self._env, name))
            setattr(self, f"single_{name}", getattr(self._env, f"single_{name}"))

    def reset(self, *, seed=None, options=None):
        return self._env.reset(seed=seed, options=options)

    def step(self, actions):
        return self._env.step(actions)


def same(one, other):
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


def transitions(data):
    """The transitions of a batch or a sample, as a set."""
    columns = (
        data["observation"],
        data["next_observation"],
        data["reward"][:, None],
        data["truncated"][:, None],
    )
    return {tuple(row) for row in np.concatenate(columns, axis=1).tolist()}


@pytest.mark.parametrize("options", OPTIONS, ids=["-".join(options) for options in OPTIONS])
def test_cr4_to_cr9_a_worker_collects_the_same(options, take):
    common = {"frames_per_batch": 14, "num_envs": 2, "seed": 3, **options}
    with hr.Collector(in_turn(counter_env_fns(LENGTHS)), act, **common) as inline:
        ours = take(inline, 4)
    with hr.AsyncCollector(in_turn(counter_env_fns(LENGTHS)), act, **common) as worker:
        theirs = take(worker, 4)
    for one, other in zip(ours, theirs, strict=True):
        assert list(one) == list(other)
        same(one, other)


@pytest.mark.parametrize("options", OPTIONS[:3], ids=["-".join(options) for options in OPTIONS[:3]])
def test_cr6_to_cr8_two_workers_collect_what_one_collector_does(options, take):
    # CS5: all columns but episode_id.
    common = {"num_envs": 2, "seed": 3, **options}
    fns = counter_env_fns([3, 5, 4, 2])
    with hr.Collector(in_turn(fns), act, frames_per_batch=28, **(common | {"num_envs": 4})) as inline:
        ours = take(inline, 3)
    with hr.MultiCollector(
        [in_turn(fns[:2]), in_turn(fns[2:])], act, sync=True, frames_per_batch=28, **common
    ) as workers:
        theirs = take(workers, 3)
    for one, other in zip(ours, theirs, strict=True):
        for name in one:
            if name != "episode_id":
                np.testing.assert_array_equal(one[name], other[name], name)


@pytest.mark.parametrize("sync", [True, False])
def test_cr7_cq2_workers_whose_environments_all_wait(sync, take):
    with hr.MultiCollector(
        [in_turn(counter_env_fns([3, 5])), in_turn(counter_env_fns([4, 4]))],
        act,
        sync=sync,
        frames_per_batch=24 if sync else 12,
        num_envs=2,
        reset_when_done=False,
    ) as collector:
        batches = take(collector, 1 if sync else 2)
        assert sum(batch.frames for batch in batches) == 3 + 5 + 4 + 4
        for _ in range(2):
            with pytest.raises(RuntimeError, match="waits for a reset"):
                collector.next(timeout=40)
        collector.reset([False, True, False, False])
        (batch,) = take(collector, 1)
        assert batch["mask"].sum(axis=1).tolist() == ([0, 5, 0, 0] if sync else [0, 5])
        assert batch["t"][1].tolist() == [0, 1, 2, 3, 4, 0]
        with pytest.raises(RuntimeError, match="waits for a reset"):
            collector.next(timeout=40)
        collector.reset()
        assert sum(batch.frames for batch in take(collector, 1 if sync else 2)) == 16
        collector.set_seed(1)
        take(collector, 1)
        with pytest.raises(ValueError, match="expected 4 bools"):
            collector.reset([True])


def test_cq2_a_reset_while_a_worker_runs(take):
    with hr.AsyncCollector(lambda: CounterEnv(1000), act, frames_per_batch=10, num_envs=2) as collector:
        take(collector, 1)
        collector.reset([False, True])
        batches = take(collector, 4)
    ids = np.concatenate([batch["episode_id"] for batch in batches], axis=1)
    t = np.concatenate([batch["t"] for batch in batches], axis=1)
    assert (ids[0] == 0).all()
    assert sorted(set(ids[1].tolist())) in ([1, 2], [2])
    np.testing.assert_array_equal(np.diff(t[0]), 1)
    assert (np.concatenate([batch["truncated"] for batch in batches], axis=1) == 0).all()


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_cq2_one_of_two_vector_environments_is_reset(mode, take):
    # With all its copies, which it resets itself.
    with hr.MultiCollector(
        [lambda: UnmaskedVector([20, 20], mode)] * 2, sync=True, frames_per_batch=16
    ) as collector:
        take(collector, 1)
        with pytest.raises(ValueError, match="cannot be reset by mask"):
            collector.reset([True, False, False, False])
        collector.reset([False, False, True, True])
        (batch,) = take(collector, 1)
    assert batch["t"].tolist() == [[4, 5, 6, 7]] * 2 + [[0, 1, 2, 3]] * 2
    assert batch["observation"][..., 1].tolist() == [[0] * 4] * 2 + [[1] * 4] * 2


@pytest.mark.parametrize("sync", [True, False])
def test_cr9_cr10_the_result_is_handed_out(sync, take):
    def postproc(batch):
        return batch.shape, batch.worker_idx

    with hr.MultiCollector(
        [in_turn(counter_env_fns([3, 5]))] * 2,
        act,
        sync=sync,
        frames_per_batch=24 if sync else 12,
        num_envs=2,
        split_trajs=True,
        postproc=postproc,
    ) as collector:
        assert collector.postproc is postproc
        ((shape, worker_idx),) = take(collector, 1)
    assert shape == ((8, 5) if sync else (4, 5))
    assert worker_idx is None if sync else worker_idx in (0, 1)


@pytest.mark.parametrize("has_replay", [False, True])
def test_ch1_hooks_in_a_worker(has_replay, make_replay, take, tmp_path):
    # The worker's own batch has the rows that are handed out.
    path = tmp_path / "seen.npz"
    fns = counter_env_fns(LENGTHS)
    replay = None
    if has_replay:
        # Rollouts span pages.
        replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=320)

    def before():
        before.calls = getattr(before, "calls", 0) + 1

    def after(batch):
        assert not batch["reward"].flags.writeable
        after.seen = [*getattr(after, "seen", []), batch]
        np.savez(path, **{f"{i}/{name}": each[name] for i, each in enumerate(after.seen) for name in each})

    with hr.AsyncCollector(
        in_turn(fns), act, frames_per_batch=34, num_envs=2, replay_buffer=replay, set_truncated=True
    ) as collector:
        collector.pre_collect_hook = before
        collector.post_collect_hook = after
        batches = take(collector, 3)
        assert collector.post_collect_hook is after
        assert not hasattr(after, "seen")  # Changes that a hook makes in a worker stay there.
    with np.load(path) as seen:
        for i, batch in enumerate(batches):
            for name in batch:
                np.testing.assert_array_equal(seen[f"{i}/{name}"], batch[name], name)


def test_ch1_a_hook_that_is_set_later_sees_the_episodes_under_way(take, tmp_path):
    path = tmp_path / "seen.npy"

    def after(batch):
        np.save(path, batch["t"])

    with hr.AsyncCollector(lambda: CounterEnv(1000), act, frames_per_batch=10) as collector:
        take(collector, 1)
        collector.post_collect_hook = after
        while not path.exists():
            take(collector, 1)
        collector.post_collect_hook = None
        take(collector, 2)
        (t,) = np.load(path)
    assert t[0] >= 10
    np.testing.assert_array_equal(np.diff(t), 1)
    assert t[0] % 10 == 0


@pytest.mark.parametrize("mode", ["single", "same_step", "next_step"])
@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}, {"set_truncated": True}], ids=str)
@pytest.mark.parametrize("resets", [False, True], ids=["", "reset"])
def test_ch1_a_hook_that_is_set_between_two_steps_of_episodes(mode, options, resets, take, tmp_path):
    # CQ2, CR6, CE4: the episodes under way are cut, or a reset is due, before the hook has seen a step of them.
    def after(batch):
        after.count = getattr(after, "count", -1) + 1
        np.savez(tmp_path / f"{after.count}.npz", **batch)

    single = mode == "single"
    made = in_turn(counter_env_fns([3, 50])) if single else lambda: counter_vector_env([3, 50], mode)
    with hr.MultiCollector(
        made, act, sync=True, num_workers=1, frames_per_batch=6, num_envs=2 if single else 1, **options
    ) as collector:
        take(collector, 1)  # The first environment has ended with it.
        collector.post_collect_hook = after
        if resets:
            collector.reset()
        batches = take(collector, 3)
    for i, batch in enumerate(batches):
        with np.load(tmp_path / f"{i}.npz") as seen:
            for name in set(batch) - {"episode_id"}:
                np.testing.assert_array_equal(seen[name], batch[name], name)
            is_same = np.diff(seen["episode_id"]) == 0
            np.testing.assert_array_equal(is_same, np.diff(batch["episode_id"]) == 0)


def test_ch1_hooks_while_a_replay_is_filled(make_replay, tmp_path):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=1000)

    def after(batch):
        (tmp_path / f"{batch['t'][0, 0]}").touch()

    with hr.AsyncCollector(
        lambda: CounterEnv(1000), act, frames_per_batch=10, total_frames=50, replay_buffer=replay
    ) as collector:
        collector.set_post_collect_hook(after)
        collector.start()
        collector._group.status.wait(lambda: not collector.statistics().running, 20, lambda: "the end")
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("name", ["pre_collect_hook", "post_collect_hook"])
def test_cx1_a_hook_that_fails_in_a_worker(name):
    def fail(*_):
        raise ZeroDivisionError("by intent")

    options = {"frames_per_batch": 4, "restart_workers": False}
    with hr.AsyncCollector(lambda: CounterEnv(30), act, **options) as collector:
        setattr(collector, name, fail)
        with pytest.raises(hr.WorkerDied) as died:
            collector.next(timeout=40)
        assert isinstance(died.value.__cause__, ZeroDivisionError)
        assert any(name in note for note in died.value.__cause__.__notes__)
        with pytest.raises(TypeError, match=name):
            setattr(collector, name, 3)


def test_cr6_to_cr8_items_of_a_replay_that_a_worker_fills(make_replay):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=2000)
    with hr.AsyncCollector(
        in_turn(counter_env_fns(LENGTHS)),
        act,
        frames_per_batch=16,
        total_frames=160,
        num_envs=2,
        reset_at_each_iter=True,
        reset_when_done=False,
        set_truncated=True,
        replay_buffer=replay,
    ) as collector:
        batches = [batch.flatten() for batch in collector]
    known = set().union(*(transitions(batch) for batch in batches))
    stored = replay.sample("t", 3000, views=hr.views.transition()).data
    assert len(known) == sum(batch.frames for batch in batches) == len(replay.table("t")) == 160
    assert transitions(stored) == known


def scaled(batch):
    return batch.with_columns(
        {name: batch[name] * 10 for name in ("observation", "next_observation", "reward")}
    )


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("single", {}),
        ("single", {"reset_at_each_iter": True}),
        ("single", {"init_random_frames": 50}),
        ("disabled", {}),
        ("same_step", {}),
        ("next_step", {}),
    ],
)
def test_cr10_a_replay_stores_what_postproc_makes_in_a_worker(mode, options, make_replay):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=1000)
    made = (
        in_turn(counter_env_fns(LENGTHS)) if mode == "single" else lambda: counter_vector_env(LENGTHS, mode)
    )
    with hr.AsyncCollector(
        made,
        act,
        frames_per_batch=80,  # More than a page of the replay.
        num_envs=2 if mode == "single" else 1,
        total_frames=240,
        postproc=scaled,
        replay_buffer=replay,
        **options,
    ) as collector:
        batches = [batch.flatten() for batch in collector]
    rows = sum(batch.frames for batch in batches)
    known = set().union(*(transitions(batch) for batch in batches))
    stored = replay.sample("t", 4000, views=hr.views.transition()).data
    assert len(replay.table("t")) == rows
    assert transitions(stored) == known
    for batch in batches:
        np.testing.assert_array_equal(batch["observation"][:, 2], 10 * batch["t"])
        np.testing.assert_array_equal(batch["next_observation"][:, 2], 10 * batch["t"] + 10)


def test_cr10_a_pause_waits_until_a_rollout_is_written_and_resets_and_seeds_do_not(make_replay):
    # CQ2, CS6, CF6
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=10000)
    with hr.MultiCollector(
        [lambda: CounterEnv(50)] * 2,
        act,
        sync=False,
        frames_per_batch=20,
        postproc=scaled,
        replay_buffer=replay,
    ) as collector:
        collector.start()
        for take in (collector.reset, lambda: collector.set_seed(3), lambda: None):
            take()
            replay.sample("t", 1, timeout=40)
            with collector.pause():
                written = replay.statistics().store.rows
                statistics = collector.statistics()
                assert statistics.frames % 20 == 0
                assert statistics.frames > 0
                # The newest transition of each lane follows. A slow worker may not have begun.
                lanes = sum(worker.frames > 0 for worker in statistics.workers)
                assert len(replay.table("t")) == statistics.frames - lanes
                assert replay.statistics().store.rows == written
    stored = replay.sample("t", 4000, views=hr.views.transition()).data
    step = stored["next_observation"] - stored["observation"]
    np.testing.assert_array_equal(step, np.broadcast_to([0, 0, 10], step.shape))


def test_cr10_what_a_worker_cannot_store(make_replay):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3), act), capacity=1000)
    with hr.AsyncCollector(
        lambda: CounterEnv(3),
        act,
        frames_per_batch=4,
        postproc=lambda batch: None,
        replay_buffer=replay,
        restart_workers=False,
    ) as collector:
        with pytest.raises(hr.WorkerDied, match="postproc: expected it to return the batch") as caught:
            collector.next(timeout=40)
        assert isinstance(caught.value.__cause__, TypeError)
        assert len(replay.table("t")) == 0


@pytest.mark.parametrize("options", [{}, {"reset_at_each_iter": True}, {"reset_when_done": False}])
def test_ch1_the_hook_sees_resets_as_the_batch_does(options, take, tmp_path):
    def after(batch):
        after.count = getattr(after, "count", -1) + 1
        np.savez(tmp_path / f"{after.count}.npz", **batch)

    with hr.AsyncCollector(
        in_turn(counter_env_fns([7, 50])), act, frames_per_batch=20, num_envs=2, **options
    ) as collector:
        collector.post_collect_hook = after
        collector.reset([True, False])
        batches = take(collector, 1)
        for chosen in ([True, False], [False, True], [True, True]) * 2:
            collector.reset(chosen)
            batches += take(collector, 2)
    for i, batch in enumerate(batches):
        with np.load(tmp_path / f"{i}.npz") as seen:
            for name in batch:
                np.testing.assert_array_equal(seen[name], batch[name], name)
    assert max(batch["episode_id"].max() for batch in batches) > 6


class Drawn(gymnasium.Env):
    """Draws everything from its own generator: one reset or one action more or less changes all that follows."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def _draw(self, action=0):
        return (self.np_random.normal(size=2) + action).clip(-9, 9).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._draw(), {}

    def step(self, action):
        return self._draw(action), 1.0, bool(self.np_random.random() < 0.3), False, {}


SOME = [True, False, False, True]
SCRIPTS = {
    "before the first step": lambda c: c.reset(SOME),
    "all before the first step": lambda c: c.reset(),
    "twice": lambda c: (c.next(40), c.reset(SOME), c.reset([False, False, True, True])),
    "before seeds": lambda c: (c.next(40), c.reset(SOME), c.set_seed(5)),
    "after seeds": lambda c: (c.next(40), c.set_seed(5), c.reset(SOME), c.reset()),
    "after a state": lambda c: (c.state_dict(), c.reset(SOME), c.state_dict(), c.reset()),
    "after a state of seeds": lambda c: (c.next(40), c.set_seed(5), c.state_dict(), c.reset()),
    "after a loaded state": lambda c: (c.load_state_dict(c.state_dict()), c.reset(SOME)),
    "a loaded state of seeds": lambda c: (c.next(40), c.set_seed(5), c.load_state_dict(c.state_dict())),
    "between batches": lambda c: (c.next(40), c.reset(SOME), c.next(40), c.next(40), c.reset()),
}


@pytest.mark.parametrize("resets", [False, True])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
def test_cs5_cq2_resets_are_one_reset_before_the_next_step(script, resets):
    # Also together with the reset of `reset_at_each_iter`, and with the seeds of the start.
    common = {"frames_per_batch": 24, "seed": 3, "reset_at_each_iter": resets}
    with (
        hr.Collector(Drawn, num_envs=4, **common) as inline,
        hr.MultiCollector(Drawn, sync=True, num_workers=2, num_envs=2, **common) as workers,
    ):
        script(inline)
        script(workers)
        for _ in range(2):
            one, other = inline.next(40), workers.next(40)
            for name in set(one) - {"episode_id"}:
                np.testing.assert_array_equal(one[name], other[name], name)


def test_cs5_cr7_environments_that_wait_use_up_no_random_actions():
    # A worker all of whose environments wait takes no step; inline those of another worker go on.
    common = {"frames_per_batch": 40, "seed": 3, "reset_at_each_iter": True, "reset_when_done": False}
    with (
        hr.Collector(Drawn, num_envs=4, **common) as inline,
        hr.MultiCollector(Drawn, sync=True, num_workers=2, num_envs=2, **common) as workers,
    ):
        for _ in range(4):
            one, other = inline.next(40), workers.next(40)
            assert not one["mask"].all()
            for name in set(one) - {"episode_id"}:
                np.testing.assert_array_equal(one[name], other[name], name)
