"""docs/cleanrl.md: the code that replaces CleanRL's runs as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch")

PAGE = (Path(__file__).parents[1] / "docs" / "cleanrl.md").read_text()
# The first is CleanRL's.
_, DQN, PPO = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


class Done(Exception):
    """Ends the loop of the page."""


def test_the_loop_of_a_dqn():
    envs = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    envs.action_space.seed(0)
    networks = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]
    args = SimpleNamespace(
        buffer_size=50, seed=0, gamma=0.9, total_timesteps=60, learning_starts=20, batch_size=16
    )
    names = {"hr": hr, "torch": torch, "envs": envs, "device": "cpu", "args": args}
    names |= {"q_network": networks[0], "target_network": networks[1]}
    names["act"] = lambda obs: envs.action_space.sample()
    exec(DQN, names)
    data, replay = names["data"], names["replay"]
    assert len(replay.table("replay")) == 50
    with torch.no_grad():
        value = networks[1](data["next_observation"]).max(dim=1).values * ~data["terminated"]
        torch.testing.assert_close(names["td_target"], data["reward"] + 0.9 * value)
    assert names["old_val"].shape == (16,)
    names["writer"].close()
    replay.close()
    envs.close()


def test_the_loop_of_ppo():
    class Agent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def value(self, observation):
            return self.layer(observation).squeeze(-1).detach()

        def forward(self, observation):
            return torch.zeros(len(observation), dtype=torch.int64)

    parts = []

    def update(agent, part):
        parts.append(part)
        if len(parts) == 9:
            raise Done

    names = {
        "hr": hr, "agent": Agent(), "update": update,
        "args": SimpleNamespace(
            env_id="CartPole-v1", num_envs=2, num_steps=32, seed=0, gamma=0.9, gae_lambda=0.9, minibatch_size=16,
            update_epochs=2,
        ),
    }  # fmt: skip
    with pytest.raises(Done):
        exec(PPO, names)
    assert {len(part["advantage"]) for part in parts} <= set(range(1, 17))
    np.testing.assert_array_equal(parts[0]["return"].shape, parts[0]["advantage"].shape)
