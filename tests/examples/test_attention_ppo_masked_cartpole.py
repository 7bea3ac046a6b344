"""The short form of examples/attention_ppo_masked_cartpole.py."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")


def test_the_pole_stays_up_longer(example, capsys):
    assert (
        example("attention_ppo_masked_cartpole").main(batches=12) > 45
    )  # With window=1: 32 and 29 with seeds 0 and 1.
    assert "next_acted next_observation next_seen observation value" in capsys.readouterr().out


def test_views_give_the_values_of_acting(example):
    """The network computes from the views of a batch what it computed from those that it acted on."""
    ppo = example("attention_ppo_masked_cartpole")
    policy = ppo.AttentionPolicy(window=4)
    with hr.RolloutWorker(
        ppo.make_env, policy, rollout_fragment_length=50, num_envs=2, detect_columns=False, seed=0
    ) as worker:
        worker.sample()
        batch = worker.sample()
    assert not batch["seen_mask"].all()
    assert (batch["acted"] == 2).any()
    with torch.no_grad():
        _, value = policy(batch)
        _, next_value = policy(batch, "next_")
    np.testing.assert_allclose(value.numpy(), batch["value"], atol=1e-5)
    goes_on = batch["episode_id"][1:] == batch["episode_id"][:-1]
    np.testing.assert_allclose(next_value.numpy()[:-1][goes_on], batch["value"][1:][goes_on], atol=1e-5)


def test_one_step_runs_too(example):
    assert example("attention_ppo_masked_cartpole").main(batches=1, window=1) > 0
