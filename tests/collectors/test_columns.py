"""Columns beside those that every collector has: entries of info, and extras of the policy."""

import sys

import cloudpickle
import numpy as np
import pytest

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])

COLLECTORS = [hr.Collector, hr.AsyncCollector]
KINDS = ["single", "one", "disabled", "same_step", "next_step"]
INFO = {"count": hr.ArraySpec((), np.int64)}
SIGNATURE = hr.collectors.signature(lambda: CounterEnv(3))


def environments(kind):
    """`create_env_fn` and its options."""
    if kind == "single":
        return in_turn(counter_env_fns([3, 5])), {"num_envs": 2}
    if kind == "one":
        return in_turn(counter_env_fns([3])), {}
    return lambda: counter_vector_env([3, 5], kind), {}


def table(max_size=1000):
    return hr.Table(
        "t", sampler=hr.selectors.Uniform(replacement=False), remover=hr.selectors.Fifo(), max_size=max_size
    )


# ---- entries of info -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_info_columns_of_batches(collector_type, kind, take):
    # CE5: each stands in the row of the observation that it came with; masked rows are zero (CB6).
    create, options = environments(kind)
    with collector_type(create, frames_per_batch=20, info_columns=INFO, **options) as collector:
        batches = take(collector, 3)
    for batch in batches:
        assert list(batch)[-1] == "count"
        assert batch["count"].dtype == np.int64
        np.testing.assert_array_equal(batch["count"], batch["observation"][..., 2])
        np.testing.assert_array_equal(
            batch["next_observation"][..., 2][batch["mask"]], batch["count"][batch["mask"]] + 1
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_info_columns_of_a_replay(collector_type, kind, make_replay):
    # CE5, CF1: in the rows, final rows included, and in the signature that the replay is built with.
    signature = hr.collectors.signature(lambda: CounterEnv(3), info_columns=INFO)
    assert signature.columns["count"] == INFO["count"]
    replay = make_replay(signature, table())
    views = hr.views.transition() | {
        "count": hr.View("count"),
        "next_count": hr.View("count", shift=1),
    }
    create, options = environments(kind)
    with collector_type(
        create, frames_per_batch=20, total_frames=40, replay_buffer=replay, info_columns=INFO, **options
    ) as collector:
        batches = list(collector)
    assert all((batch["count"] == batch["observation"][..., 2]).all() for batch in batches)
    count = len(replay.table("t"))
    assert count == sum(batch.frames for batch in batches)
    data = replay.sample("t", count, views=views, timeout=5).data
    np.testing.assert_array_equal(data["count"], data["observation"][:, 2])
    np.testing.assert_array_equal(data["next_count"], data["next_observation"][:, 2])
    np.testing.assert_array_equal(data["next_count"], data["count"] + 1)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_policy_beside_info_columns(collector_type, take):
    # It sees the observation alone, trees too.
    def policy(observation):
        return observation["count"][:, 1] % 4, {"value": observation["count"][:, 1].astype(np.float32)}

    with collector_type(
        lambda: CounterEnv(9, layout="dict"), policy, frames_per_batch=20, num_envs=2, info_columns=INFO
    ) as collector:
        batch = take(collector, 1)[0]
    np.testing.assert_array_equal(batch["value"], batch["count"])
    np.testing.assert_array_equal(batch["action"], batch["count"] % 4)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_info_columns_that_do_not_fit(collector_type, make_replay, take):
    # CF1, CR13: all that can be known is refused by the constructor.
    create = lambda: CounterEnv(3)  # noqa: E731 - its source stands in no other place
    for wrong, error in (
        ({"reward": hr.ArraySpec((), float)}, hr.SpecError),
        ({"count": int}, hr.SpecError),
        (["count"], TypeError),
    ):
        with pytest.raises(error, match="info_columns"):
            collector_type(create, frames_per_batch=10, info_columns=wrong)
    with pytest.raises(hr.SpecError, match=r"missing: count .*info_columns"):
        collector_type(
            create, frames_per_batch=10, info_columns=INFO, replay_buffer=make_replay(SIGNATURE, table())
        )

    def policy(observation):
        return np.zeros(len(observation), int), {"count": np.zeros(len(observation))}

    with pytest.raises(hr.SpecError, match=r"'count' is an info column"):
        with collector_type(create, policy, frames_per_batch=10, info_columns=INFO) as collector:
            take(collector, 1)


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_a_missing_entry(collector_type, take):
    # CE5: environment, step and name.
    class Forgetful(CounterEnv):
        def step(self, action):
            *returned, info = super().step(action)
            return *returned, {} if info["count"] == 2 else info

    with pytest.raises(
        (hr.SpecError, hr.WorkerDied), match=r"environment 1: count: expected int64\[\] in info at step 1 "
    ):
        with collector_type(
            in_turn([lambda: CounterEnv(9), lambda: Forgetful(9)]),
            frames_per_batch=10,
            num_envs=2,
            info_columns=INFO,
        ) as collector:
            take(collector, 1)


# ---- extras of the policy ------------------------------------------------------------------------------------------


def policy_with_extras(observation):
    zeros = np.zeros(len(observation))
    return zeros.astype(int), {"value": zeros, "log_prob": zeros, "kept": zeros}


def replay_without_two(make_replay):
    signature = hr.Signature({**SIGNATURE.tree, "kept": hr.ArraySpec((), np.float64)})
    return make_replay(signature, table())


def test_extras_that_a_replay_lacks_are_told_once(make_replay, take, recwarn):
    # CF1: at the first step, when they are known.
    with hr.Collector(
        lambda: CounterEnv(3),
        policy_with_extras,
        frames_per_batch=10,
        init_random_frames=10,
        replay_buffer=replay_without_two(make_replay),
    ) as collector:
        take(collector, 1)
        assert not recwarn
        with pytest.warns(UserWarning, match=r"not stored.*lacks them: value, log_prob\. ") as told:
            take(collector, 1)
        assert told[0].filename.endswith("conftest.py")  # Where `next` was called.
        take(collector, 2)
    assert not recwarn


def test_extras_that_a_replay_lacks_are_told_by_a_worker(make_replay, take, recwarn, caplog):
    create, options = lambda: CounterEnv(3), {"frames_per_batch": 10}
    with pytest.warns(UserWarning, match=r"not stored.*: value, log_prob\. ") as told:
        collector = hr.AsyncCollector(
            create, policy_with_extras, replay_buffer=replay_without_two(make_replay), **options
        )
    assert told[0].filename == __file__
    with collector:
        take(collector, 3)
    # After random actions no call of the user's is under way: it is logged.
    with hr.AsyncCollector(
        create,
        policy_with_extras,
        init_random_frames=10,
        replay_buffer=replay_without_two(make_replay),
        **options,
    ) as collector:
        take(collector, 3)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "value, log_prob." in caplog.text
    assert not recwarn


@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_extras_that_are_stored_are_not_told(make_replay, take, recwarn, collector_type):
    signature = hr.collectors.signature(lambda: CounterEnv(3), policy_with_extras)
    for options in ({}, {"replay_buffer": make_replay(signature, table())}):
        with collector_type(
            lambda: CounterEnv(3), policy_with_extras, frames_per_batch=10, **options
        ) as collector:
            take(collector, 2)
    assert not recwarn


# ---- how many batches ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("collector_type", COLLECTORS)
def test_the_number_of_batches(collector_type, kind):
    # CB10: exact, or TypeError where masked rows make it depend on the episodes.
    create, options = environments(kind)
    with collector_type(create, frames_per_batch=20, total_frames=60, **options) as collector:
        if kind == "next_step":
            with pytest.raises(TypeError, match="NEXT_STEP"):
                len(collector)
            assert len(list(collector)) > 3
        else:
            assert len(collector) == 3
            assert len(list(collector)) == 3
