"""The short form of examples/lstm_ppo_masked_cartpole.py."""

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")


def test_the_pole_stays_up_longer(example):
    assert (
        example("lstm_ppo_masked_cartpole").main(batches=15) > 50
    )  # Without memory: 31 and 44 with seeds 0 and 1.


@pytest.mark.parametrize("memory", [True, False])
def test_sequences_give_the_values_of_acting(example, memory):
    """The network unrolled over padded sequences, from the stored states, computes what it computed step by step."""
    ppo = example("lstm_ppo_masked_cartpole")
    policy = ppo.LstmPolicy(memory)
    longest = 8 if memory else 1
    with hr.RolloutWorker(
        ppo.make_env, policy, rollout_fragment_length=50, num_envs=2, max_seq_len=longest, seed=0
    ) as worker:
        worker.sample()
        padded = worker.sample().right_zero_pad(longest)
    assert (padded["state_in_0"] != 0).any() == memory
    with torch.no_grad():
        observation = torch.from_numpy(padded["observation"]).unflatten(0, (-1, longest))
        _, value, *_ = policy(observation, *(torch.from_numpy(padded[name]) for name in ppo.STATE_IN))
    np.testing.assert_allclose(value.flatten().numpy()[padded.mask], padded["value"][padded.mask], atol=1e-5)


def test_without_memory_it_runs_too(example):
    assert example("lstm_ppo_masked_cartpole").main(batches=1, memory=False) > 0
