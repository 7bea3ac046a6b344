"""Environments that are stepped asynchronously: batches are those of the same environments stepped all at once."""

import contextlib
import itertools
import os
import signal
import sys
from typing import ClassVar

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.collectors.loop.actor import Actor
from headrace.collectors.loop.times import LoopTimes
from headrace.collectors.loop.uneven import UnevenStepper
from headrace.envs.adapters.envpool_async import AsyncEnvPoolStepper
from headrace.testing import counter_transitions
from headrace.testing.envpools import CounterEnvPool

cloudpickle.register_pickle_by_value(sys.modules[__name__])

FLAGS = {"terminated", "truncated"}
lengths_of_pools = st.lists(st.integers(1, 6), min_size=2, max_size=5)


def act(observation):
    """Treats each row alone."""
    count = observation.reshape(-1, 3)
    return (count[:, 0] + 2 * count[:, 1] + count[:, 2]) % 4


def batches(pool, count, policy=act, **options):
    with hr.Collector(pool, policy, **options) as collector:
        return [collector.next() for _ in range(count)]


def check_same(ours, expected):
    for mine, model in zip(ours, expected, strict=True):
        assert set(mine) == set(model)
        for name in model:
            np.testing.assert_array_equal(mine[name], model[name], err_msg=name)


def random_order(seed):
    generator = np.random.default_rng(seed)
    return lambda ids, size: generator.permutation(ids)[:size].tolist()


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_batches_are_those_of_the_pool_stepped_all_at_once(data):
    """CB1, CB3 to CB7, CE4, CR5, CR8: in any order of results each lane has the same rows, of the same ids."""
    lengths = data.draw(lengths_of_pools)
    size = data.draw(st.integers(1, len(lengths) - 1))
    ending = data.draw(st.sampled_from(["terminated", "truncated", "both"]))
    options = {
        "frames_per_batch": len(lengths) * data.draw(st.integers(1, 9)),
        "set_truncated": data.draw(st.booleans()),
    }
    order = random_order(data.draw(st.integers(0, 99)))
    pool = CounterEnvPool(lengths, ending=ending, batch_size=size, order=order)
    expected = batches(CounterEnvPool(lengths, ending=ending), 4, **options)
    check_same(batches(pool, 4, **options), expected)


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_of_pools, limit=st.integers(1, 4), data=st.data())
def test_a_limit_cuts_as_the_end_of_an_episode_does(lengths, limit, data):
    """CR5: the transition that reaches it is truncated, and the reset takes a row, as after each end."""
    size = data.draw(st.integers(1, len(lengths) - 1))
    pool = CounterEnvPool(lengths, batch_size=size, order=random_order(data.draw(st.integers(0, 99))))
    options = {"frames_per_batch": len(lengths) * data.draw(st.integers(1, 9))}
    ours = batches(pool, 4, max_frames_per_traj=limit, **options)
    # Episodes that end there by themselves, but for their flags.
    short = batches(CounterEnvPool([min(length, limit) for length in lengths]), 4, **options)
    for mine, model in zip(ours, short, strict=True):
        check_same(
            [{name: mine[name] for name in set(mine) - FLAGS}],
            [{name: model[name] for name in set(model) - FLAGS}],
        )
        ended, own = model["terminated"], np.array(lengths)[:, None]
        np.testing.assert_array_equal(mine["terminated"], ended & (own <= limit))
        np.testing.assert_array_equal(mine["truncated"], ended & (own >= limit))


@pytest.mark.filterwarnings("ignore:seed. EnvPool:UserWarning")
def test_random_actions_are_those_of_each_environment():
    """CS4: each environment has a generator of its own, so the order of results does not change its actions."""
    options = {"frames_per_batch": 40, "seed": 3, "policy": None}
    pool = CounterEnvPool([3, 5, 2, 7], batch_size=3, order=random_order(0))
    check_same(batches(pool, 3, **options), batches(CounterEnvPool([3, 5, 2, 7]), 3, **options))


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_of_pools, steps=st.integers(1, 6), data=st.data())
def test_a_slow_environment_is_waited_for(lengths, steps, data):
    """CB7: the pool gives the last environment's result only when it must; others are at most a rollout ahead."""
    size = data.draw(st.integers(1, len(lengths) - 1))
    slow = len(lengths) - 1
    counts = []

    def slow_last(ids, k):
        return sorted(ids, key=lambda i: i == slow)[:k]

    pool = CounterEnvPool(lengths, batch_size=size, order=slow_last)

    def policy(observation):
        counts.append([counter.step_count for counter in pool.counters])
        return act(observation)

    pool_steps = [0] * len(lengths)
    send = pool._send

    def count_steps(action):
        for i in action[0].tolist():
            pool_steps[i] += 1
        assert max(pool_steps) - min(pool_steps) <= steps + 1
        send(action)

    pool._send = count_steps
    options = {"frames_per_batch": steps * len(lengths)}
    check_same(batches(pool, 3, policy, **options), batches(CounterEnvPool(lengths), 3, **options))


def test_the_policy_acts_for_those_that_are_ready():
    """CP1: it gets the rows of `batch_size` environments, with all their columns."""
    shapes = set()

    def policy(observation):
        shapes.add(observation.shape)
        return act(observation), {"value": observation[:, 2] / 2}

    pool = CounterEnvPool([5, 5, 5, 5], batch_size=2)
    (batch,) = batches(pool, 1, policy, frames_per_batch=40)
    assert shapes == {(2, 3)}
    mask = batch["mask"]
    np.testing.assert_array_equal(batch["value"][mask], batch["observation"][mask][:, 2] / 2)


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_of_pools, data=st.data())
def test_resets_begin_episodes_at_once(lengths, data):
    """CQ2, CR6: rows that a lane is ahead are dropped; the next batch begins with the first step of an episode."""
    size = data.draw(st.integers(1, len(lengths) - 1))
    seed = data.draw(st.integers(0, 99))
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths))))
    pool = CounterEnvPool(lengths, batch_size=size, order=random_order(seed))
    with hr.Collector(pool, act, frames_per_batch=6 * len(lengths)) as collector:
        before = collector.next()
        collector.reset(chosen.tolist())
        after = [collector.next() for _ in range(2)]
    assert (after[0]["t"][chosen, 0] == 0).all()
    assert (after[0]["observation"][chosen, 0, 2] == 0).all()
    assert (after[0]["episode_id"][chosen, 0] > before["episode_id"].max()).all()
    check_lanes([before, *after])


def check_lanes(collected):
    """CB4 to CB6: rows of counters, one after the other within each episode; nothing is lost within one."""
    joined = {name: np.concatenate([batch[name] for batch in collected], axis=1) for name in collected[0]}
    for lane, mask in enumerate(joined["mask"]):
        rows = {name: column[lane][mask] for name, column in joined.items()}
        check_transitions(rows)
        np.testing.assert_array_equal(rows["observation"][:, 2], rows["t"])
        np.testing.assert_array_equal(rows["action"], act(rows["observation"]))
        np.testing.assert_array_equal(rows["reward"], 4 * rows["t"] + rows["action"])
        same = np.diff(rows["episode_id"]) == 0
        np.testing.assert_array_equal(np.diff(rows["t"])[same], 1)
        assert (rows["t"][1:][~same] == 0).all()
        for name, column in joined.items():
            if name not in ("mask", "episode_id", "policy_version", "next_observation"):
                assert not column[lane][~mask].any(), name


def check_transitions(rows):
    """CB4: the next observation is that of the next step of the same episode."""
    mask = rows["mask"]
    np.testing.assert_array_equal(rows["next_observation"][mask], rows["observation"][mask] + [0, 0, 1])


def test_a_failure_resets_all():
    """CX1: what was in flight is dropped when its result comes."""
    calls = []

    def policy(observation):
        calls.append(1)
        if len(calls) == 7:
            raise ArithmeticError("seven")
        return act(observation)

    pool = CounterEnvPool([3, 5, 2, 7], batch_size=3, order=random_order(1))
    with hr.Collector(pool, policy, frames_per_batch=40) as collector:
        with pytest.raises(ArithmeticError, match="seven"):
            collector.next()
        collected = [collector.next() for _ in range(2)]
    assert (collected[0]["t"][:, 0] == 0).all()
    check_lanes(collected)


class Counts:
    """Counts the steps of an episode in its state, and acts by the count."""

    initial_state = (np.full(2, 7),)

    def compute_actions(self, inputs):
        state = inputs["state_in_0"]
        return (act(inputs["observation"]) + state[:, 0]) % 4, [state + 1], {"double": 2 * state[:, 1]}


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_of_pools, data=st.data())
def test_states_are_kept_for_each_lane(lengths, data):
    """CP6: each environment has its own state, which begins anew with each of its episodes."""
    size = data.draw(st.integers(1, len(lengths) - 1))
    pool = CounterEnvPool(lengths, batch_size=size, order=random_order(data.draw(st.integers(0, 99))))
    options = {"frames_per_batch": len(lengths) * data.draw(st.integers(1, 9))}
    check_same(
        batches(pool, 4, Counts(), **options), batches(CounterEnvPool(lengths), 4, Counts(), **options)
    )


def test_a_policy_acts_after_random_frames():
    """CR4: environments that were ahead have random rows in the next batch, too; each row says so."""
    pool = CounterEnvPool([3, 40, 2], batch_size=1, order=lambda ids, size: sorted(ids)[-size:])
    first, *others = batches(pool, 4, Counts(), frames_per_batch=12, init_random_frames=12)
    assert (first["policy_version"][first["mask"]] == -1).all()
    for batch in others:
        acted = batch["mask"] & (batch["policy_version"] >= 0)
        np.testing.assert_array_equal(batch["state_out_0"][acted], batch["state_in_0"][acted] + 1)
        np.testing.assert_array_equal(batch["double"][acted], 2 * batch["state_in_0"][acted][:, 1])
    assert acted[batch["mask"]].all()
    check_transitions(batch)


class Looking:
    """Acts on views, and returns what it saw."""

    views: ClassVar = {
        "stack": hr.View("observation", shift="-2:0", fill=-5),
        "edge": hr.View("observation", shift="-3:-1", fill="edge"),
        "last": hr.View("action", shift=-1, fill=3),
        "rewards": hr.View("reward", shift="-2:-1", mask=True),
        "cut": hr.View("truncated", shift=-1),
        "count": hr.View("t"),
        "versions": hr.View("policy_version", shift="-1:0"),
        "value": hr.View("double", shift=-2, space=hr.ArraySpec((), np.int64)),
    }

    def compute_actions(self, inputs):
        saw = {f"saw_{name}": inputs[name] for name in (*self.views, "rewards_mask")}
        actions = (inputs["stack"][:, 0, 2] + inputs["last"] + act(inputs["observation"])) % 4
        return actions, [], {**saw, "double": 2 * inputs["observation"][:, 2] + inputs["last"]}


@settings(max_examples=25, deadline=None)
@given(lengths=lengths_of_pools, limit=st.sampled_from([None, 3]), data=st.data())
def test_views_are_those_of_the_rows_of_each_lane(lengths, limit, data):
    """CB9, V7: what the policy saw is what the stored rows of its lane show, in any order of results, over batches,
    limits and resets, also after random steps."""
    count = len(lengths)
    size = data.draw(st.integers(1, count - 1))
    pool = CounterEnvPool(lengths, batch_size=size, order=random_order(data.draw(st.integers(0, 99))))
    frames, policy = count * data.draw(st.integers(1, 9)), Looking()
    collected = []
    with hr.Collector(
        pool,
        policy,
        frames_per_batch=frames,
        max_frames_per_traj=limit,
        init_random_frames=data.draw(st.sampled_from([0, 1, 2 * frames])),
    ) as collector:
        for _ in range(5):
            collected.append(collector.next())
            if data.draw(st.booleans()):
                collector.reset(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    names = [name for name in collected[-1] if not name.startswith("next_")]
    joined = {
        name: np.concatenate(
            [batch[name] if name in batch else np.zeros_like(collected[-1][name]) for batch in collected],
            axis=1,
        )
        for name in names
    }
    for lane in range(count):
        ids = joined["episode_id"][lane]
        for episode in np.unique(ids[ids >= 0]):
            check_seen({name: column[lane][ids == episode] for name, column in joined.items()})


def check_seen(rows):
    """Compares what the policy saw in an episode with its rows, by the definition of each view."""
    for t, version in enumerate(rows["policy_version"]):
        if version < 0:
            continue

        def back(name, first, last, fill, t=t):
            return [
                rows[name][max(t + k, 0)] if fill == "edge" or t + k >= 0 else fill
                for k in range(first, last + 1)
            ]

        none = np.full(3, -5)
        expected = {
            "stack": [rows["observation"][t + k] if t + k >= 0 else none for k in (-2, -1, 0)],
            "edge": back("observation", -3, -1, "edge"),
            "last": back("action", -1, -1, 3)[0],
            "rewards": back("reward", -2, -1, 0),
            "rewards_mask": [t >= 2, t >= 1],
            "cut": back("truncated", -1, -1, False)[0],
            "count": t,
            "versions": back("policy_version", -1, 0, 0),
            "value": back("double", -2, -2, 0)[0],
        }
        for name, values in expected.items():
            np.testing.assert_array_equal(rows[f"saw_{name}"][t], values, err_msg=f"{name} at {t}")


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (Looking(), {"set_truncated": True}, "set_truncated: expected False with views of truncated"),
        (act, {"reset_when_done": False}, "reset_when_done: expected True"),
    ],
)
def test_what_is_refused(policy, options, message):
    """CR7: ValueErrors of the constructor; the pool stays usable."""
    pool = CounterEnvPool([3, 3], batch_size=1)
    with pytest.raises(ValueError, match=message):
        hr.Collector(pool, policy, frames_per_batch=4, **options)
    assert not pool.times_closed
    assert hr.Collector(pool, act, frames_per_batch=4).next().frames == 4


def make_pool():
    return CounterEnvPool([3, 5, 2], batch_size=2, order=random_order(4))


def test_in_a_worker():
    """CR5 to CR8, CB1: a worker runs the same loop."""
    with hr.AsyncCollector(make_pool, act, frames_per_batch=12) as collector:
        ours = [collector.next(timeout=30) for _ in range(3)]
    check_same(ours, batches(CounterEnvPool([3, 5, 2]), 3, frames_per_batch=12))


class Versioned:
    """Acts by its version, so that each action says which weights chose it."""

    def __init__(self, actions=4):
        self.weights, self.actions = {"version": np.zeros(1)}, actions

    def state_dict(self):
        return self.weights

    def load_state_dict(self, weights):
        self.weights = {"version": np.array(weights["version"])}

    def __call__(self, observation):
        return np.full(len(observation), int(self.weights["version"][0]) % self.actions)


def check_versions(batch, actions=4):
    """CV2: the stamp is the version that chose the action."""
    mask = batch["mask"]
    np.testing.assert_array_equal(batch["action"][mask], batch["policy_version"][mask] % actions)


@settings(max_examples=15, deadline=None)
@given(lengths=lengths_of_pools, limit=st.sampled_from([None, 2]), data=st.data())
def test_versions_are_those_of_each_row(lengths, limit, data):
    """CV2: rows of fast environments have the version of the policy when it acted for them."""
    size = data.draw(st.integers(1, len(lengths) - 1))
    pool = CounterEnvPool(lengths, batch_size=size, order=random_order(data.draw(st.integers(0, 99))))
    steps = data.draw(st.integers(1, 6))
    policy = Versioned()
    with hr.Collector(
        pool, policy, frames_per_batch=steps * len(lengths), max_frames_per_traj=limit
    ) as collector:
        for number in range(1, 6):
            batch = collector.next()
            check_versions(batch)
            collector.update_policy_weights_({"version": np.array([number], float)})


class Rows:
    """Takes vector steps as a page writer does, and keeps the versions of their rows."""

    def __init__(self, num_envs):
        self.row, self.next_row = ({"observation": np.zeros((num_envs, 3), np.int64)} for _ in range(2))
        self.versions = []

    def record(self, values, version, resets):
        self.versions.append(version)
        self.row, self.next_row = self.next_row, self.row


@settings(max_examples=60, deadline=None)
@given(num_envs=st.integers(2, 5), steps=st.integers(3, 5), data=st.data())
def test_rows_are_at_most_a_rollout_ahead(num_envs, steps, data):
    """CV8: in any order of results, and where some are reset within a rollout, no row of it was acted for before the
    rollout before began."""
    size = data.draw(st.integers(max(1, num_envs - 2), num_envs - 1))
    slow = data.draw(st.sets(st.integers(0, num_envs - 1), min_size=1))
    pool = CounterEnvPool(
        [9] * num_envs, batch_size=size, order=lambda ids, k: sorted(ids, key=slow.__contains__)[:k]
    )
    stepper, rows = AsyncEnvPoolStepper(pool), Rows(num_envs)
    actor = Actor(
        act,
        stepper.observation_signature,
        stepper.action_signature,
        num_envs,
        {},
        exploration_type=hr.ExplorationType.RANDOM,
        device=None,
    )
    uneven = UnevenStepper(
        stepper,
        actor,
        max_frames_per_traj=None,
        set_truncated=False,
        refresh=lambda: len(rows.versions) // steps,
        times=LoopTimes(),
        steps=steps,
    )
    uneven.reset(rows.row)
    last = steps * data.draw(st.integers(1, 3)) - 1
    reset_at = data.draw(st.integers(last - 1, last + 1))
    for step in range(5 * steps):
        if step == reset_at:
            uneven.reset(rows.row, envs=np.array(sorted(slow)))
        uneven.step(rows, False)
        assert rows.versions[-1].min() >= step // steps - 1


def make_slow_pool():
    return CounterEnvPool([3, 50, 4], batch_size=1, order=lambda ids, size: sorted(ids)[-size:])


def test_a_bound_on_staleness():
    """CV8: no row of a batch is further behind, although environments act a rollout ahead; from the first batch on."""
    with hr.AsyncCollector(make_slow_pool, Versioned(), frames_per_batch=12, max_staleness=1) as collector:
        for number in range(1, 3):
            collector.update_policy_weights_({"version": np.array([number], float)})
        behind = []
        for number in range(3, 15):
            batch = collector.next(timeout=30)
            check_versions(batch)
            behind.append(number - 1 - batch["policy_version"][batch["mask"]].min())
            collector.update_policy_weights_({"version": np.array([number], float)})
        assert collector.statistics().lag_exceeded == 0
    assert (
        behind[0] == 0
    )  # Rows are of the weights of the request, although the policy had been asked before.
    assert max(behind) == 1


def make_cart_poles():
    envpool = pytest.importorskip("envpool")
    return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=3, batch_size=1, num_threads=2, seed=3)


@pytest.mark.parametrize(
    ("make", "actions", "bound", "killed"),
    [
        (make_slow_pool, 4, 1, None),
        (make_slow_pool, 4, 3, None),
        (make_slow_pool, 4, 3, 5),
        (make_slow_pool, 4, 4, 5),
        (make_cart_poles, 2, 3, None),
    ],
    ids=["one works", "in turn", "killed", "further ahead", "envpool"],
)
def test_a_bound_on_staleness_of_two_workers(make, actions, bound, killed, caplog):
    """CV8, CX3: workers take turns, each row is within the bound, and within a lane no step is lost."""
    generator, workers = np.random.default_rng([bound, killed or 0]), []
    with hr.MultiCollector(
        [make] * 2, Versioned(actions), sync=False, frames_per_batch=12, max_staleness=bound
    ) as collector:
        lanes, newest = {}, 0
        for number in range(24):
            if number == killed:
                os.kill(collector.statistics().workers[0].pid, signal.SIGKILL)
            batch = collector.next(timeout=30)
            check_versions(batch, actions)
            assert newest - batch["policy_version"][batch["mask"]].min() <= bound
            workers.append(batch.worker_idx)
            for lane, mask in enumerate(batch["mask"]):
                lanes.setdefault((batch.worker_idx, lane), []).append(
                    {name: batch[name][lane][mask] for name in ("episode_id", "t")}
                )
            if generator.random() < 0.8:
                newest += 1
                collector.update_policy_weights_({"version": np.array([newest], float)})
        statistics = collector.statistics()
    assert (statistics.lag_exceeded, statistics.lag_max <= bound) == (0, True)
    active = min(2, (bound + 1) // 2)
    assert ("keeps 1 of 2 workers busy" in caplog.text) == (active == 1)
    if killed is None:
        assert workers == [number % active for number in range(24)]
        assert statistics.lag_max >= 1  # The workers are ahead.
    for parts in lanes.values():
        ids, t = (np.concatenate([part[name] for part in parts]) for name in ("episode_id", "t"))
        same = np.diff(ids) == 0
        np.testing.assert_array_equal(t[1:], np.where(same, t[:-1] + 1, 0))


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("max_staleness: expected at least 1", {"max_staleness": 0}),
        ("frames_per_batch: expected at least 3 steps", {"max_staleness": 1, "frames_per_batch": 6}),
    ],
)
def test_bounds_that_are_refused(message, options):
    """CV8, CX4: a bound that rows of environments that are ahead cannot keep is an error of the constructor."""
    with pytest.raises(ValueError, match=message):
        hr.AsyncCollector(make_pool, act, **{"frames_per_batch": 12} | options)


def test_versions_in_a_replay(tmp_path):
    """CV2, CF2: stored rows have the versions of their own lanes, also after the replay was saved and loaded."""
    pool = CounterEnvPool([3, 50, 4], batch_size=1, order=lambda ids, size: sorted(ids)[-size:])
    policy = Versioned()
    views = {"action": hr.View("action"), "version": hr.View("policy_version")}
    signature = hr.collectors.signature(lambda: CounterEnvPool([3, 50, 4]), policy)
    replay = hr.Replay(signature, capacity=1000, tables=[hr.Table.uniform(1000)])
    with hr.Collector(pool, policy, frames_per_batch=12, replay_buffer=replay) as collector:
        for number in range(1, 9):
            check_versions(collector.next())
            collector.update_policy_weights_({"version": np.array([number], float)})
        assert collector.statistics().lag_max > 0
    for each in (replay, hr.Replay.load(replay.save(tmp_path))):
        sample = each.sample("replay", 200, views=views)
        assert len(set(sample["version"].tolist())) > 4
        np.testing.assert_array_equal(sample["action"], sample["version"] % 4)


@pytest.mark.parametrize("method", ["_recv", "_send", "_reset"])
@pytest.mark.parametrize("number", [0, 1, 5])
def test_ctrl_c_loses_no_result(method, number):
    """CX7: where it comes while a message is sent or received, it is raised after that; the next batch is whole."""
    pool = CounterEnvPool([3, 5, 2, 7], batch_size=3, order=random_order(1))
    original, calls = getattr(pool, method), itertools.count()

    def interrupted(*arguments):
        result = original(*arguments)
        if next(calls) == number:
            signal.raise_signal(signal.SIGINT)
        return result

    setattr(pool, method, interrupted)
    with hr.Collector(pool, act, frames_per_batch=40, max_frames_per_traj=2) as collector:
        with pytest.raises(KeyboardInterrupt):
            collector.next()
        collected = [collector.next() for _ in range(2)]
    assert (collected[0]["t"][:, 0] == 0).all()
    check_lanes(collected)


def test_an_error_of_a_result_loses_no_environment():
    """CE5, CX1: after a result that is refused, all are reset."""
    pool = CounterEnvPool([3, 5, 2], batch_size=2)
    missing, original = [True], pool._to

    def without_entry(*arguments):
        *values, info = original(*arguments)
        if missing:
            missing.pop()
            del info["elapsed_step"]
        return *values, info

    pool._to = without_entry
    columns = {"elapsed_step": hr.ArraySpec((), np.int32)}
    with hr.Collector(pool, act, frames_per_batch=12, info_columns=columns) as collector:
        with pytest.raises(hr.SpecError, match="elapsed_step"):
            collector.next()
        batch = collector.next()
    np.testing.assert_array_equal(batch["elapsed_step"], batch["t"])
    check_lanes([batch])


class Elsewhere:
    """A replay that is known by its interface alone, as that of a client."""

    def __init__(self, replay):
        self._replay = replay

    def __getattr__(self, name):
        return getattr(self._replay, name)


def test_versions_in_a_replay_elsewhere():
    """CF1, CV2: a writer of rows has one version for all lanes of a step: the oldest of them."""
    lengths = [3, 50, 4]
    pool = CounterEnvPool(lengths, batch_size=1, order=lambda ids, size: sorted(ids)[-size:])
    policy, versions = Versioned(), []
    signature = hr.collectors.signature(lambda: CounterEnvPool(lengths), policy)
    replay = hr.Replay(signature, capacity=1000, tables=[hr.Table.uniform(1000)])
    with hr.Collector(pool, policy, frames_per_batch=12, replay_buffer=Elsewhere(replay)) as collector:
        for number in range(1, 9):
            batch = collector.next()
            check_versions(batch)
            versions += np.where(batch["mask"], batch["policy_version"], number).min(0).tolist()
            collector.update_policy_weights_({"version": np.array([number], float)})
    sample = replay.sample("replay", 200, views={"version": hr.View("policy_version")})
    assert set(sample["version"].tolist()) <= set(versions)


def test_free_running_and_a_pause():
    """CF2, CF4 to CF6: nothing is written in a pause; every transition of each lane is an item once, in its order."""
    lengths = [3, 50, 4]
    pool = CounterEnvPool(lengths, batch_size=2, order=random_order(5))
    signature = hr.collectors.signature(lambda: CounterEnvPool(lengths), act)
    first_come = hr.selectors.Fifo()
    table = hr.Table(
        "t",
        sampler=first_come,
        remover=first_come,
        max_size=4000,
        max_times_sampled=1,
        rate_limiter=hr.rate_limiters.MinSize(800),
    )
    replay = hr.Replay(signature, capacity=4000, tables=[table])
    with hr.Collector(pool, act, frames_per_batch=12, total_frames=1200, replay_buffer=replay) as collector:
        collector.start()
        with contextlib.suppress(RuntimeError), collector.pause():  # The run may be over.
            before = len(replay.table("t"))
            steps = [counter.step_count for counter in pool.counters]
            collector.statistics()
            assert before == len(replay.table("t"))
            assert steps == [counter.step_count for counter in pool.counters]
        rows = replay.sample("t", 800, timeout=40, views=hr.views.transition()).data
    np.testing.assert_array_equal(rows["next_observation"], rows["observation"] + [0, 0, 1])
    for lane, length in enumerate(lengths):
        seen = rows["observation"][rows["observation"][:, 0] == lane]
        known = counter_transitions(length, len(seen))
        np.testing.assert_array_equal(seen[:, 1], known["episode"])
        np.testing.assert_array_equal(seen[:, 2], known["step"])


def check_lane(seen, length):
    """Rows of one lane in their order: episodes from the first one, each as long as it is."""
    known = counter_transitions(length, len(seen))
    np.testing.assert_array_equal(seen[:, 1], known["episode"])
    np.testing.assert_array_equal(seen[:, 2], known["step"])


def test_a_worker_fills_a_replay_through_pauses_and_a_kill():
    """CF2, CF4, CF6, CX3, CX6: each process's rows are there once and in order; a pause stores and writes nothing."""
    lengths = [3, 5, 2]
    signature = hr.collectors.signature(lambda: CounterEnvPool(lengths), act)
    fifo = hr.selectors.Fifo()
    table = hr.Table("t", sampler=fifo, remover=fifo, max_size=100_000, max_times_sampled=1)
    replay = hr.Replay(signature, capacity=200_000, tables=[table])
    views, parts = hr.views.transition(), []
    with hr.AsyncCollector(make_pool, act, frames_per_batch=12, replay_buffer=replay) as collector:
        collector.start()
        for round_number in range(4):
            parts.append(replay.sample("t", 50, timeout=40, views=views).data)
            with collector.pause():
                items = len(replay.table("t"))
                collector.statistics()
                assert len(replay.table("t")) == items
            if round_number == 1:
                pid = collector.statistics().workers[0].pid
                os.kill(pid, signal.SIGKILL)
                while collector.statistics().workers[0].pid == pid or not len(replay.table("t")):
                    parts.append(replay.sample("t", 1, timeout=40, views=views).data)
    parts.append(replay.sample("t", len(replay.table("t")), timeout=40, views=views).data)
    seen = np.concatenate([part["observation"] for part in parts])
    following = np.concatenate([part["next_observation"] for part in parts])
    np.testing.assert_array_equal(following, np.add(seen, [0, 0, 1]))
    for lane, length in enumerate(lengths):
        rows = seen[seen[:, 0] == lane]
        begins = np.flatnonzero((rows[:, 1:] == 0).all(1))
        assert len(begins) == 2  # Of the two processes.
        for process in np.split(rows, begins[1:]):
            check_lane(process, length)


def test_preempted_workers_go_on_where_they_stopped():
    """CR12: masked rows are not collected, and no transition is lost, doubled or out of order."""
    lengths, lanes = [3, 5, 2], [[] for _ in range(6)]
    with hr.MultiCollector(
        [make_pool] * 2, act, sync=True, frames_per_batch=48, preemptive_threshold=0.5
    ) as collector:
        frames = 0
        for _ in range(6):
            batch = collector.next(timeout=30)
            assert batch.shape == (6, 8)
            frames += batch.frames
            for lane in range(6):
                lanes[lane].append(batch["observation"][lane][batch["mask"][lane]])
        assert collector.statistics().frames == frames
    for lane, parts in enumerate(lanes):
        check_lane(np.concatenate(parts), lengths[lane % 3])
