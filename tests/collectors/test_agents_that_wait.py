"""`reset_when_done=False` with several agents (collectors CR7; with CR4 to CR6, CB5, CB6, CQ2, CQ3, CF2)."""

import pickle
import sys
from functools import partial

import agents_model
import cloudpickle
import numpy as np
import pytest
import scripted_agents
from agents_model import (
    FIVE,
    THREE,
    Model,
    check_ids,
    check_items,
    check_rows,
    draw_resets,
    environment,
    environments,
    options_of_resets,
    replay_of_items,
    sets_of_scripts,
    step_by_step,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import by_time

import headrace as hr
from headrace.envs import new_columns
from headrace.envs.adapters.pettingzoo_parallel import ParallelStepper
from headrace.testing import in_turn
from headrace.testing.agents import CounterAgents

for module in (sys.modules[__name__], agents_model, scripted_agents):
    cloudpickle.register_pickle_by_value(module)


@settings(max_examples=80, deadline=None)
@given(sets_of_scripts, st.integers(1, 9), options_of_resets, st.data())
def test_every_row_against_the_model(scripts, steps, options, data):
    """CR4 to CR7, CB5, CB6, CQ2."""
    model = Model(scripts, steps, **options)
    batches, rollouts = [], []
    with hr.Collector(
        in_turn(environments(scripts)),
        by_time,
        frames_per_batch=steps * len(model.lanes),
        num_envs=len(scripts),
        **options,
    ) as collector:
        for _ in range(5):
            if model.stands_still:
                with pytest.raises(RuntimeError, match="waits for a reset"):
                    collector.next()
                model.reset()
                collector.reset()
            elif data.draw(st.integers(0, 3)) == 0:
                chosen = [data.draw(st.booleans()) for _ in scripts]
                collector.reset(model.lanes_of(chosen))
                if model.begun and not model.reset_at_each_iter:
                    model.reset(chosen)
            rollouts.append(model.rollout())
            batches.append(collector.next())
            check_rows(batches[-1], rollouts[-1])
    check_ids(batches, rollouts)


def test_copies_in_workers_of_a_synchronous_collector():
    """CR7: where the copies of a worker have ended its rows are masked; where all have, RuntimeError."""
    model = Model([THREE, FIVE], 4, reset_when_done=False)
    with hr.MultiCollector(
        environments([THREE, FIVE]), by_time, sync=True, frames_per_batch=24, reset_when_done=False
    ) as collector:
        for _ in range(2):
            for _ in range(2):
                check_rows(collector.next(timeout=60), model.rollout())
            assert model.stands_still
            with pytest.raises(RuntimeError, match="waits for a reset"):
                collector.next(timeout=60)
            collector.reset()
            model.reset()


def test_copies_in_workers_of_an_asynchronous_collector():
    """CR7: a worker begins no rollout in which all its copies would wait."""
    models = [Model([script], 4, reset_when_done=False) for script in (THREE, FIVE)]
    with hr.MultiCollector(
        environments([THREE, FIVE]), by_time, sync=False, frames_per_batch=12, reset_when_done=False
    ) as collector:
        for _ in range(2):
            for _ in range(3):
                batch = collector.next(timeout=60)
                check_rows(batch, models[batch.worker_idx].rollout())
            assert all(model.stands_still for model in models)
            with pytest.raises(RuntimeError, match="waits for a reset"):
                collector.next(timeout=60)
            collector.reset()
            for model in models:
                model.reset()


def test_one_environment_of_a_worker_is_reset():
    """CQ2, CR7: with all its agents, while the others wait."""
    scripts = [THREE, FIVE]
    model = Model(scripts, 6, reset_when_done=False)
    with hr.MultiCollector(
        environments(scripts), by_time, sync=True, frames_per_batch=36, reset_when_done=False
    ) as collector:
        for chosen in ([True, False], [False, True], [True, True]):
            check_rows(collector.next(timeout=60), model.rollout())
            assert model.stands_still
            collector.reset(model.lanes_of(chosen))
            model.reset(chosen)
        with pytest.raises(ValueError, match="the same for all 3 agents of an environment"):
            collector.reset([True] * 4 + [False] * 2)
        check_rows(collector.next(timeout=60), model.rollout())


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
def test_at_most_one_episode_of_each_agent_in_a_batch(kind):
    """CR7: with `reset_at_each_iter`."""
    with kind(
        partial(environment, FIVE),
        by_time,
        frames_per_batch=30,
        reset_when_done=False,
        reset_at_each_iter=True,
        split_trajs=True,
    ) as collector:
        for _ in range(2):
            batch = collector.next(timeout=60)
            assert batch["mask"].sum(axis=1).tolist() == [2, 5, 2]
            assert not batch["t"][:, 0].any()


@settings(max_examples=60, deadline=None)
@given(sets_of_scripts, st.integers(1, 8), options_of_resets, st.data())
def test_states_and_resets_between_two_steps(scripts, steps, options, data):
    """CR7, CQ2, CQ3: a collector that loads the state goes on, also while copies wait."""
    model, made = Model(scripts, steps, **options), []
    numbers = st.sets(st.integers(1, 7), max_size=2)

    def make():
        made.append(
            hr.Collector(
                in_turn(environments(scripts)),
                by_time,
                frames_per_batch=steps * len(model.lanes),
                num_envs=len(scripts),
                **options,
            )
        )
        return made[-1]

    try:
        collector = make()
        for _ in range(3):
            resets, states = draw_resets(data, model), data.draw(numbers)

            def between(collector, step, resets=resets, states=states):
                if step in states:
                    state = pickle.loads(pickle.dumps(collector.state_dict()))
                    collector = make()
                    collector.load_state_dict(state)
                if step in resets:
                    collector.reset(model.lanes_of(resets[step]))
                return collector

            if model.stands_still:
                model.reset()
                collector.reset()
            rollout = model.rollout(resets)
            collector, batch = step_by_step(collector, steps, between)
            check_rows(batch, rollout)
    finally:
        for each in made:
            each.shutdown()


class Recurrent:
    """Its state counts the steps of a trajectory; a view shows the action before."""

    initial_state = (np.zeros((), np.int64),)

    def compute_actions(self, input_dict):
        state = input_dict["state_in_0"]
        return np.zeros(len(state), np.int64), [state + 1], {"seen": input_dict["before"]}


def test_a_recurrent_policy():
    """CP6, CR7: agents that wait have the initial state, and views begin anew."""
    with hr.Collector(
        in_turn(environments([THREE, FIVE])),
        Recurrent(),
        frames_per_batch=24,
        num_envs=2,
        reset_when_done=False,
        views={"before": hr.View("reward", shift=-1, fill=-7.0)},
    ) as collector:
        for _ in range(3):
            for mask in ([1, 3, 2, 2, 4, 2], [0, 0, 0, 0, 1, 0]):
                batch = collector.next()
                assert batch["mask"].sum(axis=1).tolist() == mask
                valid = batch["mask"]
                np.testing.assert_array_equal(batch["state_in_0"][valid], batch["t"][valid])
                known = np.where(batch["t"] == 0, -7, 1)
                np.testing.assert_array_equal(batch["seen"][valid], known[valid])
            collector.reset()


@pytest.mark.parametrize("kind", [hr.Collector, hr.AsyncCollector])
@pytest.mark.parametrize("script", [THREE, FIVE])
def test_a_replay(kind, script):
    """CR7, CF2: one item for each transition, none for a row in which an agent waited."""
    options = {"reset_when_done": False, "reset_at_each_iter": True}
    model = Model([script], 6, **options)
    with replay_of_items(script) as replay:
        with kind(
            partial(environment, script),
            by_time,
            frames_per_batch=18,
            total_frames=18,
            replay_buffer=replay,
            **options,
        ) as collector:
            batches = list(collector)
        rollouts = [model.rollout() for _ in batches]
        for batch, rollout in zip(batches, rollouts, strict=True):
            check_rows(batch, rollout)
        check_items(replay, rollouts)


def test_some_environments_are_stepped():
    """CR7: an adapter leaves the others alone; the agents of one are stepped together."""
    stepper = ParallelStepper([CounterAgents([1, 3]), CounterAgents([3, 3], first_copy=2)])
    row = new_columns(stepper.observation_signature, 4)
    actions = {"action": np.zeros(4, np.int64)}
    stepper.reset(row)
    stepper.step(actions, row)
    step = stepper.step(actions, row, np.array([0, 1]))
    assert step.waiting.tolist() == [0, 2, 3]
    assert row["observation"].tolist() == [[0, 0, 1], [1, 0, 2], [2, 0, 1], [3, 0, 1]]
    assert step.reward.tolist() == [0, 4, 0, 0]
    step = stepper.step(actions, row)
    assert (step.ended.tolist(), step.over.tolist()) == ([1], [0, 1])
    with pytest.raises(ValueError, match="active: expected all lanes of an environment or none"):
        stepper.step(actions, row, np.array([1, 2]))


def test_nothing_is_asked_of_an_environment_that_waits():
    """CR7: it is not stepped, and the policy sees its last observation."""
    seen = []

    def policy(observation):
        seen.append(observation[:, 2].tolist())
        return by_time(observation)

    with hr.Collector(
        in_turn(environments([THREE, FIVE])), policy, frames_per_batch=42, num_envs=2, reset_when_done=False
    ) as collector:
        batch = collector.next()
        envs = collector._loop.stepper.environments
    assert [len(env.acted) for env in envs] == [3, 5]
    assert batch["mask"].sum(axis=1).tolist() == [1, 3, 2, 2, 5, 2]
    assert seen == [
        [0, 0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1],
        [1, 2, 2, 2, 2, 2],
        [1, 3, 3, 2, 3, 2],
        [1, 3, 3, 2, 4, 2],
    ]
