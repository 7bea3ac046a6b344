"""policy.pt: written, read without pickle, and it acts the same."""

import pytest
import torch

from headrace.cli.dqn import checkpoint
from headrace.cli.dqn.network import NetworkShape
from headrace.cli.dqn.policy import EpsilonGreedy
from headrace.errors import CheckpointError

SHAPE = NetworkShape((4,), num_actions=3, hidden_units=8)


def test_a_policy_comes_back_and_acts_greedily(tmp_path):
    torch.manual_seed(0)
    policy = EpsilonGreedy(SHAPE, first_action=5, epsilon=1.0)
    checkpoint.save(tmp_path / "policy.pt", policy, {"environment": "CartPole-v1", "frames": 3})
    content = torch.load(tmp_path / "policy.pt", weights_only=True)
    assert content["about"] == {"environment": "CartPole-v1", "frames": 3}
    found = checkpoint.load(tmp_path / "policy.pt")
    observation = torch.randn(50, 4)
    with torch.no_grad():
        greedy = policy.network(observation).argmax(dim=1) + 5
        assert found(observation).tolist() == greedy.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["policy.pt"]


def test_what_is_not_such_a_file_is_refused(tmp_path):
    (tmp_path / "noise.pt").write_bytes(b"noise")
    torch.save({"format": 99}, tmp_path / "newer.pt")
    torch.save({"weights": torch.zeros(1)}, tmp_path / "other.pt")
    for name, told in (
        ("noise.pt", "noise.pt"),
        ("newer.pt", "format 1"),
        ("other.pt", "format"),
        ("no.pt", "no.pt"),
    ):
        with pytest.raises(CheckpointError, match=told):
            checkpoint.load(tmp_path / name)
