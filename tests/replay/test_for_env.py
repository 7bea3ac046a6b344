"""A replay for the steps of an environment."""

import gymnasium
import numpy as np
import pytest

import headrace as hr
from headrace.testing.envs import CounterEnv, counter_vector_env

TABLES = [hr.Table.uniform(10)]
STEP = {"action", "reward", "terminated", "truncated"}


def test_the_signature_is_that_of_the_spaces():
    with hr.Replay.for_env("CartPole-v1", TABLES, capacity=100, seed=0) as replay:
        columns = replay.signature.columns
        assert columns == hr.collectors.signature("CartPole-v1").columns
        assert columns["observation"] == hr.ArraySpec((4,), np.float32)
        assert (columns["action"].dtype, columns["reward"].dtype) == (np.int64, np.float32)
        assert replay.table_names == ("replay",)
        assert replay.statistics().store.capacity >= 100


def test_a_tree_of_observations():
    with hr.Replay.for_env(CounterEnv(3, layout="dict"), TABLES) as replay:
        assert set(replay.signature.columns) - STEP == {"observation/count", "observation/copy"}


def test_a_ready_environment_stays_open_and_as_it_is():
    env = CounterEnv(3)
    env.reset()
    env.step(0)
    with hr.Replay.for_env(env, TABLES):
        pass
    assert (env.closed, len(env.seeds), len(env.actions)) == (0, 1, 1)


def test_an_environment_that_is_made_is_closed():
    made = []

    def make():
        made.append(CounterEnv(3))
        return made[0]

    with hr.Replay.for_env(make, TABLES):
        assert [(env.closed, env.seeds) for env in made] == [(1, [])]


def test_it_is_closed_when_it_cannot_be_used():
    env = CounterEnv(3)
    env.observation_space = gymnasium.spaces.Text(5)
    with pytest.raises(hr.SpecError, match="expected a Box"):
        hr.Replay.for_env(lambda: env, TABLES)
    assert env.closed == 1


@pytest.mark.parametrize("mode", ["disabled", "same_step", "next_step"])
def test_a_vector_environment_gives_the_steps_of_one(mode):
    envs = counter_vector_env([3, 4], mode)
    with hr.Replay.for_env(envs, TABLES) as replay:
        assert replay.signature.columns["observation"] == hr.ArraySpec((3,), np.int64)
    envs.close()


def test_extras_are_a_column_of_their_own():
    extras = {"log_prob": hr.ArraySpec((), np.float32)}
    with hr.Replay.for_env("CartPole-v1", TABLES, extras=extras) as replay:
        with hr.TransitionWriter(replay, "replay") as writer:
            writer.add_first(np.zeros(4, np.float32))
            writer.add(1, 1.0, True, False, np.ones(4, np.float32), extras={"log_prob": -0.5})
        assert replay.sample(1)["extras/log_prob"].tolist() == [-0.5]


def test_a_store_on_disk_is_opened_again(tmp_path):
    for _ in range(2):
        with hr.Replay.for_env("CartPole-v1", TABLES, path=tmp_path / "store") as replay:
            assert len(replay.signature.columns) == 5
