"""Trajectories as rows, postprocessed batches, n-step transitions, and hooks around rollouts."""

import sys
import threading

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pieces(batch):
    """The rows of each trajectory piece of a batch, in the order of CR9: lists of (row, step)."""
    found = []
    for i in range(batch.shape[0]):
        last = None
        for step in range(batch.shape[1]):
            if not batch["mask"][i, step]:
                continue
            if batch["episode_id"][i, step] != last:
                found.append([])
            last = batch["episode_id"][i, step]
            found[-1].append((i, step))
    return found


LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 12), st.booleans(), st.booleans())
def test_cr9_every_row_of_split_trajectories(lengths, steps, waits, layout):
    options = {"frames_per_batch": steps * len(lengths), "num_envs": len(lengths), "seed": 0}
    options |= {"reset_when_done": not waits}
    fns = [counter_env_fns(lengths, layout="dict" if layout else "box") for _ in range(2)]
    with (
        hr.Collector(in_turn(fns[0]), **options) as raw,
        hr.Collector(in_turn(fns[1]), split_trajs=True, **options) as split,
    ):
        for _ in range(3):
            if raw._loop.all_wait:
                raw.reset()
                split.reset()
            one, other = raw.next(), split.next()
            expected = pieces(one)
            shape = len(expected), max((len(piece) for piece in expected), default=0)
            assert other.shape == shape
            names = (
                ["observation/count", "next_observation/copy"]
                if layout
                else ["observation", "next_observation"]
            )
            for name in [*names, "action", "reward", "terminated", "t", "episode_id", "mask"]:
                known = np.full(
                    (*shape, *one[name].shape[2:]), -1 if name == "episode_id" else 0, one[name].dtype
                )
                for k, piece in enumerate(expected):
                    for place, row in enumerate(piece):
                        known[k, place] = one[name][row]
                np.testing.assert_array_equal(other[name], known)
        assert raw.statistics().frames == split.statistics().frames


def multi_step(batch, n_step, gamma):
    """The rule of CR10, row by row."""
    rewards, steps = np.zeros(batch.shape), np.zeros(batch.shape, int)
    for piece in pieces(batch):
        for place, row in enumerate(piece):
            for k, other in enumerate(piece[place : place + n_step]):
                rewards[row] += gamma**k * batch["reward"][other]
                steps[row] = k + 1
                if batch["terminated"][other] or batch["truncated"][other]:
                    break
    return rewards, steps


@settings(max_examples=40, deadline=None)
@given(
    LENGTHS,
    st.integers(1, 12),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.booleans(),
    st.booleans(),
)
def test_cr10_multi_step_against_its_rule(lengths, steps, n_step, gamma, split, waits):
    options = {"frames_per_batch": steps * len(lengths), "num_envs": len(lengths), "seed": 0}
    options |= {"reset_when_done": not waits, "split_trajs": split, "set_truncated": True}
    raw = []

    def postproc(batch):
        raw.append(batch)
        return hr.collectors.MultiStep(n_step, gamma)(batch)

    with hr.Collector(in_turn(counter_env_fns(lengths)), postproc=postproc, **options) as collector:
        batch = collector.next()
    (before,) = raw
    rewards, used = multi_step(before, n_step, gamma)
    mask = before["mask"]
    np.testing.assert_allclose(batch["reward"], rewards, rtol=1e-6)
    np.testing.assert_array_equal(batch["original_reward"], before["reward"])
    np.testing.assert_array_equal(batch["steps_to_next_obs"], used)
    np.testing.assert_allclose(batch["discount"], np.where(mask, gamma**used, 0), rtol=1e-6)
    assert [str(batch[name].dtype) for name in ("reward", "steps_to_next_obs", "discount")] == [
        "float32", "int64", "float32"
    ]  # fmt: skip
    for row in zip(*np.nonzero(mask), strict=True):
        last = row[0], row[1] + used[row] - 1
        for name in ("next_observation", "terminated", "truncated"):
            np.testing.assert_array_equal(batch[name][row], before[name][last])


def test_cr10_multi_step_refuses_what_it_cannot_do(take):
    with pytest.raises(ValueError, match="n_step"):
        hr.collectors.MultiStep(0, 0.9)
    with pytest.raises(ValueError, match="gamma"):
        hr.collectors.MultiStep(2, 1.5)
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        (batch,) = take(collector, 1)
    with pytest.raises(ValueError, match=r"expected a batch \[N, T\]"):
        hr.collectors.MultiStep(2, 0.9)(batch.flatten())


def test_cr10_the_result_is_handed_out_once_a_batch(take):
    calls = []

    def postproc(batch):
        calls.append(batch.shape)
        return {"number": len(calls)}

    with hr.Collector(
        lambda: CounterEnv(3), frames_per_batch=4, total_frames=8, split_trajs=True, postproc=postproc
    ) as collector:
        assert list(collector) == [{"number": 1}, {"number": 2}]
        assert collector.postproc is postproc
        with pytest.warns(DeprecationWarning, match="postprocs"):
            assert collector.postprocs is postproc
    assert calls == [(2, 3), (2, 2)]


def test_cr10_a_postproc_that_returns_nothing_or_fails(take):
    results = [None, ZeroDivisionError("by intent")]

    def postproc(batch):
        result = results.pop(0) if results else batch
        if isinstance(result, Exception):
            raise result
        return result

    with hr.Collector(lambda: CounterEnv(30), frames_per_batch=4, postproc=postproc) as collector:
        with pytest.raises(TypeError, match="return"):
            collector.next()
        with pytest.raises(ZeroDivisionError, match="intent"):
            collector.next()
        (batch,) = take(collector, 1)
        statistics = collector.statistics()
    assert batch["t"].tolist() == [[8, 9, 10, 11]]  # The environments go on.
    assert (statistics.frames, statistics.batches, statistics.frames_discarded) == (12, 3, 0)


@pytest.mark.parametrize("argument", [{"postproc": 3}, {"split_trajs": 1}])
def test_cr13_arguments_of_handing_out(argument):
    with pytest.raises(TypeError, match=next(iter(argument))):
        hr.Collector(lambda: CounterEnv(3), frames_per_batch=4, **argument)


def scaled(batch):
    """Observations and rewards times ten."""
    return batch.with_columns(
        {name: batch[name] * 10 for name in ("observation", "next_observation", "reward")}
    )


@pytest.mark.parametrize("mode", ["single", "disabled", "same_step", "next_step"])
def test_cr10_a_replay_stores_what_postproc_makes(mode, make_replay, take):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000)
    made = in_turn(counter_env_fns([3, 5])) if mode == "single" else counter_vector_env([3, 5], mode)
    with hr.Collector(
        made,
        frames_per_batch=8,
        num_envs=2 if mode == "single" else 1,
        total_frames=48,
        postproc=scaled,
        split_trajs=True,
        replay_buffer=replay,
    ) as collector:
        batches = list(collector)
    flat = [batch.flatten() for batch in batches]
    rows = np.concatenate([batch["observation"] for batch in flat])
    assert (rows % 10 == 0).all()
    nexts = np.concatenate([batch["next_observation"] for batch in flat])
    rewards = np.concatenate([batch["reward"] for batch in flat])
    stored = replay.sample("t", 2000, views=hr.views.transition()).data
    assert len(replay.table("t")) == len(rows)
    known = {(*a, *b, c) for a, b, c in zip(rows.tolist(), nexts.tolist(), rewards.tolist(), strict=True)}
    seen = {
        (*a, *b, c)
        for a, b, c in zip(
            stored["observation"].tolist(),
            stored["next_observation"].tolist(),
            stored["reward"].tolist(),
            strict=True,
        )
    }
    assert seen == known


@pytest.mark.parametrize(
    ("postproc", "error", "told"),
    [
        (dict, TypeError, "Batch"),
        (lambda batch: None, TypeError, "return"),
        (hr.collectors.MultiStep(2, 0.9), hr.SpecError, "discount"),
        (lambda batch: batch.with_columns({"reward": batch["reward"].astype(float)}), hr.SpecError, "reward"),
        (lambda batch: batch.flatten(), hr.SpecError, "action"),
    ],
)
def test_cr10_what_a_replay_cannot_store(postproc, error, told, make_replay):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000)
    with hr.Collector(
        lambda: CounterEnv(3), frames_per_batch=4, postproc=postproc, replay_buffer=replay
    ) as collector:
        with pytest.raises(error, match=told):
            collector.next()
        assert collector.statistics().frames_discarded == 4
    assert len(replay.table("t")) == 0


# ---- hooks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_replay", [False, True])
def test_ch1_hooks_run_around_each_rollout(has_replay, make_replay, take):
    calls = []
    replay = (
        make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000) if has_replay else None
    )

    def after(batch):
        calls.append(batch)
        with pytest.raises(ValueError, match="read-only"):
            batch["reward"][...] = 0

    with hr.Collector(
        lambda: CounterEnv(3),
        frames_per_batch=4,
        split_trajs=not has_replay,
        postproc=scaled,
        replay_buffer=replay,
    ) as collector:
        collector.pre_collect_hook = lambda: calls.append("before")
        collector.set_post_collect_hook(after)
        assert collector.post_collect_hook is after
        batches = take(collector, 2)
        collector.pre_collect_hook = collector.post_collect_hook = None
        take(collector, 1)
    assert [call if call == "before" else call.shape for call in calls] == ["before", (1, 4)] * 2
    for batch, raw in zip(batches, calls[1::2], strict=True):
        np.testing.assert_array_equal(batch.flatten()["reward"], 10 * raw["reward"][0])
        assert batch["reward"].flags.writeable


@pytest.mark.parametrize("name", ["pre_collect_hook", "post_collect_hook"])
def test_ch1_a_hook_is_a_callable(name):
    with hr.Collector(lambda: CounterEnv(3), frames_per_batch=4) as collector:
        with pytest.raises(TypeError, match=name):
            setattr(collector, name, 3)
        assert getattr(collector, name) is None


@pytest.mark.parametrize("name", ["pre_collect_hook", "post_collect_hook"])
def test_cx1_a_hook_that_fails(name, take):
    def fail(*_):
        raise ZeroDivisionError("by intent")

    with hr.Collector(lambda: CounterEnv(30), frames_per_batch=4, num_envs=2) as collector:
        take(collector, 2)
        setattr(collector, name, fail)
        with pytest.raises(ZeroDivisionError, match="intent") as caught:
            collector.next()
        assert any(name in note and "rollout 2" in note for note in caught.value.__notes__)
        setattr(collector, name, None)
        (batch,) = take(collector, 1)
        assert batch["t"].tolist() == [[0, 1]] * 2  # All are reset, under new ids.
        assert batch["episode_id"].min() >= 2
        assert collector.statistics().frames_discarded == (4 if name == "post_collect_hook" else 0)


def test_ch1_cr10_hooks_and_postproc_while_a_replay_is_filled_freely(make_replay):
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000)
    calls, fifth = [], threading.Event()

    def after(batch):
        calls.append(batch["t"].tolist())
        if len(calls) == 10:
            fifth.set()

    with hr.Collector(
        lambda: CounterEnv(30),
        frames_per_batch=10,
        total_frames=50,
        reset_at_each_iter=True,
        postproc=scaled,
        replay_buffer=replay,
    ) as collector:
        collector.pre_collect_hook = lambda: calls.append("before")
        collector.post_collect_hook = after
        collector.start()
        assert fifth.wait(40)
    assert calls == ["before", [list(range(10))]] * 5
    stored = replay.sample("t", 500, views=hr.views.transition()).data
    assert len(replay.table("t")) == 50
    assert {tuple(row) for row in stored["observation"].tolist()} == {
        (0, 10 * episode, 10 * step) for episode in range(5) for step in range(10)
    }
    np.testing.assert_array_equal(stored["next_observation"] - stored["observation"], [[0, 0, 10]] * 500)
