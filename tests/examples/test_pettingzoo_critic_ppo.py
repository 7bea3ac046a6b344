"""The short form of examples/pettingzoo_critic_ppo.py."""

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("torch")
pytest.importorskip("pettingzoo")


def test_the_rowers_learn_the_beat(example):
    assert example("pettingzoo_critic_ppo").main(batches=20) > 0.7  # By chance: 0.5.


def test_the_critic_sees_the_team(example):
    """Both rowers' rows of a step have the same two observations, of which the own one is one."""
    ppo = example("pettingzoo_critic_ppo")
    policy = ppo.TeamPolicy(ppo.ROWERS)
    with hr.RolloutWorker(
        ppo.Boat, policy, rollout_fragment_length=25, detect_columns=False, seed=0
    ) as worker:
        batch = worker.sample()["default_policy"]
    port, starboard = (
        {name: column[batch["agent_index"] == agent] for name, column in batch.items()} for agent in (0, 1)
    )
    np.testing.assert_array_equal(port["team"], starboard["team"])
    np.testing.assert_array_equal(port["team"][:, 0], port["observation"])
    np.testing.assert_array_equal(starboard["team"][:, 1], starboard["observation"])
    np.testing.assert_array_equal(port["next_team"][:, 1], starboard["next_observation"])


def test_a_critic_of_its_own_view_runs_too(example):
    assert 0 <= example("pettingzoo_critic_ppo").main(batches=2, own_view=True) <= 1


def test_the_boat_is_an_environment_of_pettingzoo(example):
    from pettingzoo.test import parallel_api_test

    parallel_api_test(example("pettingzoo_critic_ppo").Boat(), num_cycles=50)
