"""Algorithms of SB3 train on our buffer, unchanged."""

import pytest
from stable_baselines3 import DQN

from headrace.integrations.sb3 import ReplayBuffer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_dqn_trains():
    model = DQN(
        "MlpPolicy", "CartPole-v1", replay_buffer_class=ReplayBuffer, buffer_size=1000, learning_starts=50,
        policy_kwargs={"net_arch": [16]}, seed=0, device="cpu",
    )  # fmt: skip
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(300)
    assert model._n_updates > 10
    assert any((value != before[name]).any() for name, value in model.policy.state_dict().items())
    assert model.replay_buffer.size() == 300
