"""The options of collection, against a plain model that simulates every copy step by step."""

import sys

import cloudpickle
import numpy as np
import pytest
from counter_model import check_rows, model_of
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import CounterEnv, counter_env_fns, counter_vector_env, in_turn

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def act(observation):
    return (observation[:, 2] + observation[:, 0]) % 4


OPTIONS = st.fixed_dictionaries(
    {
        "reset_at_each_iter": st.booleans(),
        "reset_when_done": st.booleans(),
        "set_truncated": st.booleans(),
        "max_frames_per_traj": st.none() | st.integers(1, 9),
        "init_random_frames": st.none() | st.integers(1, 30),
    }
)
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 12), OPTIONS, st.data())
def test_cr4_to_cr8_cq2_every_row_against_the_model(lengths, steps, options, data):
    model = model_of(lengths, steps, options)
    with hr.Collector(
        in_turn(counter_env_fns(lengths)),
        act,
        frames_per_batch=steps * len(lengths),
        num_envs=len(lengths),
        **options,
    ) as collector:
        frames, episodes = 0, 0
        for _ in range(6):
            if model.stands_still:
                with pytest.raises(RuntimeError, match="waits for a reset"):
                    collector.next()
                model.reset()
                collector.reset()
            elif data.draw(st.integers(0, 3)) == 0:
                chosen = data.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)))
                collector.reset(chosen)
                model.reset(chosen)
            lanes = model.rollout()
            check_rows(collector.next(), lanes)
            rows = [row for lane in lanes for row in lane if row is not None]
            frames += len(rows)
            ends = [lengths[row["copy"]] == row["t"] + 1 or model.limit == row["t"] + 1 for row in rows]
            episodes += sum(ends)
        statistics = collector.statistics()
        assert (statistics.frames, statistics.episodes) == (frames, episodes)


def test_cr6_a_rollout_begins_with_a_reset_of_all(rows_by_copy, take):
    envs = [CounterEnv(7), CounterEnv(4, copy=1)]
    with hr.Collector(
        in_turn([lambda: envs[0], lambda: envs[1]]),
        frames_per_batch=10,
        num_envs=2,
        seed=3,
        reset_at_each_iter=True,
    ) as collector:
        batches = take(collector, 3)
    assert [env.seeds for env in envs] == [[3, None, None], [4] + [None] * 5]  # CS2; never twice in a row.
    for batch in batches:
        assert batch["t"].tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 0]]
        assert not batch["truncated"].any()
        assert batch["terminated"].tolist() == [[False] * 5, [False, False, False, True, False]]
    assert [batch["episode_id"][0, 0] for batch in batches] == [0, 3, 6]


@pytest.mark.parametrize("mode", ["disabled", "same_step", "next_step"])
def test_cr6_cr8_vector_environments(mode, take):
    # The cut of NEXT_STEP: an environment that is about to reset itself is reset once.
    env = counter_vector_env([3, 5], mode)
    with hr.Collector(env, frames_per_batch=6, reset_at_each_iter=True, set_truncated=True) as collector:
        batches = take(collector, 3)
    for batch in batches:
        assert batch["t"].tolist() == [[0, 1, 2], [0, 1, 2]]
        assert batch["mask"].all()
        assert batch["terminated"].tolist() == [[False, False, True], [False, False, False]]
        assert batch["truncated"].tolist() == [[False, False, True]] * 2
        np.testing.assert_array_equal(batch["next_observation"][..., 2], batch["t"] + 1)


def test_cr7_needs_environments_that_are_reset_from_outside():
    with pytest.raises(ValueError, match="reset_when_done"):
        hr.Collector(counter_vector_env([3], "same_step"), frames_per_batch=4, reset_when_done=False)


def test_cr7_environments_that_wait_are_not_stepped_and_the_policy_is_not_asked_for_none(take):
    calls = []

    def policy(observation):
        calls.append(observation[:, 2].tolist())
        return np.zeros(len(observation), int)

    fns = in_turn(counter_env_fns([2, 4]))
    with hr.Collector(
        fns, policy, frames_per_batch=12, total_frames=24, num_envs=2, reset_when_done=False
    ) as collector:
        (batch,) = take(collector, 1)
        assert [len(env.actions) for env in collector._loop.stepper.environments] == [2, 4]
        with pytest.raises(TypeError, match="reset_when_done"):
            len(collector)
    assert calls == [[0, 0], [1, 1], [2, 2], [2, 3]]  # One that waits shows its last observation.
    assert batch["mask"].tolist() == [[True] * 2 + [False] * 4, [True] * 4 + [False] * 2]


def test_cr7_a_vector_environment_without_autoreset(take):
    with hr.Collector(
        counter_vector_env([2, 4], "disabled"), frames_per_batch=12, reset_when_done=False
    ) as collector:
        (batch,) = take(collector, 1)
        assert batch["mask"].sum(axis=1).tolist() == [2, 4]
        collector.reset([True, False])
        (batch,) = take(collector, 1)
        assert batch["mask"].sum(axis=1).tolist() == [2, 0]
        assert batch["episode_id"][0].tolist() == [2, 2, -1, -1, -1, -1]


def test_cr8_example_of_the_page(take):
    with hr.Collector(lambda: CounterEnv(7), frames_per_batch=5, set_truncated=True) as collector:
        one, two = take(collector, 2)
        assert collector.statistics().episodes == 1
    assert one["truncated"].tolist() == [[False] * 4 + [True]]
    assert not one["terminated"].any()
    assert two["t"].tolist() == [[5, 6, 0, 1, 2]]
    assert two["terminated"].tolist() == [[False, True, False, False, False]]
    assert two["truncated"].tolist() == [[False] * 4 + [True]]


def test_cr8_the_last_valid_row_of_next_step(take):
    # The reset takes the last step: the row before it is the copy's last one.
    env = counter_vector_env([3, 9], "next_step")
    with hr.Collector(env, frames_per_batch=8, set_truncated=True) as collector:
        (batch,) = take(collector, 1)
        assert collector.statistics().episodes == 1
    assert batch["mask"].tolist() == [[True, True, True, False], [True] * 4]
    assert batch["truncated"].tolist() == [[False, False, True, False], [False, False, False, True]]
    assert batch["terminated"].tolist() == [[False, False, True, False], [False] * 4]


class Recurrent:
    """Its state counts the steps of the episode."""

    def __init__(self):
        self.initial_state = [np.zeros((), np.int64)]
        self.views = {"last": hr.View("reward", shift=-1, fill=-7.0)}

    def compute_actions(self, input_dict):
        state = input_dict["state_in_0"]
        return np.zeros(len(state), int), [state + 1], {"seen": input_dict["last"]}


@pytest.mark.parametrize("option", ["reset_at_each_iter", "reset_when_done", "reset"])
def test_cp6_states_and_views_begin_anew_with_each_reset(option, take):
    options = {"reset_at_each_iter": True} if option == "reset_at_each_iter" else {}
    if option == "reset_when_done":
        options = {"reset_when_done": False}
    fns = in_turn(counter_env_fns([4, 50]))
    with hr.Collector(fns, Recurrent(), frames_per_batch=12, num_envs=2, **options) as collector:
        batches = take(collector, 1)
        for _ in range(3):
            if option != "reset_at_each_iter":
                collector.reset([True, False])
            batches += take(collector, 1)
    for batch in batches:
        mask = batch["mask"]
        assert mask.any(axis=1).all()
        np.testing.assert_array_equal(batch["state_in_0"][mask], batch["t"][mask])
        known = np.where(batch["t"] == 0, -7, 4 * (batch["t"] - 1))
        np.testing.assert_array_equal(batch["seen"][mask], known[mask])


def test_cq2_reset_checks_its_argument(take):
    with hr.Collector(lambda: CounterEnv(7), frames_per_batch=4, num_envs=2) as collector:
        with pytest.raises(ValueError, match="expected 2 bools"):
            collector.reset([True])
        with pytest.raises(TypeError, match="bools"):
            collector.reset([0, 1])
        collector.reset([False, False])
        take(collector, 1)
        collector.reset([False, True])
        (batch,) = take(collector, 1)
        assert batch["t"].tolist() == [[2, 3], [0, 1]]
        assert batch["episode_id"].tolist() == [[0, 0], [2, 2]]
    with pytest.raises(hr.Closed):
        collector.reset()


@pytest.mark.parametrize("name", ["reset_at_each_iter", "reset_when_done", "set_truncated"])
def test_cr13_options_are_bools(name):
    with pytest.raises(TypeError, match=name):
        hr.Collector(lambda: CounterEnv(7), frames_per_batch=4, **{name: 1})


def test_cr6_to_cr8_cq2_items_of_a_replay(make_replay, take):
    # Every transition is an item once, its next observation with it; a cut carries no flag.
    replay = make_replay(hr.collectors.signature(lambda: CounterEnv(3)), capacity=1000)
    fns = in_turn(counter_env_fns([3, 5]))
    rows = []
    with hr.Collector(
        fns, frames_per_batch=8, num_envs=2, reset_when_done=False, set_truncated=True, replay_buffer=replay
    ) as collector:
        for chosen in [[True, False], [True, True], [False, True], [True, False]]:
            batch = collector.next()
            rows.append(batch.flatten())
            collector.reset(chosen)
    table = replay.table("t")
    stored = replay.sample("t", 2000, views=hr.views.transition()).data
    assert len(table) == sum(each.frames for each in rows)
    known = {
        (*row, *after, bool(end))
        for batch in rows
        for row, after, end in zip(
            batch["observation"].tolist(),
            batch["next_observation"].tolist(),
            batch["terminated"],
            strict=True,
        )
    }
    seen = {
        (*row, *after, bool(end))
        for row, after, end in zip(
            stored["observation"].tolist(),
            stored["next_observation"].tolist(),
            stored["discount"] == 0,
            strict=True,
        )
    }
    assert len(known) == sum(each.frames for each in rows)
    assert seen == known
