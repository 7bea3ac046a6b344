"""PPO of skrl learns CartPole on a memory of Headrace.

Nothing of the agent changes: where skrl's `RandomMemory` stood, `hr.memories.RandomMemory` stands. The memory is
saved at the end, and read back.

    pip install "headrace[torch]" skrl
    python examples/skrl_ppo_memory.py --steps 20000
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import gymnasium as gym
import numpy as np
import skrl
import torch
from skrl.agents.torch import ppo
from skrl.envs.wrappers.torch import wrap_env
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer

import headrace as hr

NUM_ENVS, ROLLOUT = 4, 64
SKRL_1 = int(skrl.__version__.split(".")[0]) < 2


class FlatActions(gym.vector.VectorActionWrapper):
    """Discrete actions as (N,), as gymnasium takes them; skrl 1 gives (N, 1)."""

    def actions(self, actions: Any) -> Any:
        """What the environments are given."""
        return np.reshape(actions, -1)


def spaces(env: Any) -> dict[str, Any]:
    """What every model and agent of skrl is told of the environment."""
    return {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "device": env.device,
    }


def network(env: Any, outputs: int) -> torch.nn.Module:
    """One hidden layer."""
    inputs = env.observation_space.shape[0]
    return torch.nn.Sequential(torch.nn.Linear(inputs, 64), torch.nn.Tanh(), torch.nn.Linear(64, outputs))


def observations(inputs: dict[str, Any]) -> torch.Tensor:
    """What a model is given to look at."""
    return inputs["states" if SKRL_1 else "observations"]


class Policy(CategoricalMixin, Model):
    """Scores of the actions."""

    def __init__(self, env: Any) -> None:
        Model.__init__(self, **spaces(env))
        CategoricalMixin.__init__(self, unnormalized_log_prob=True)
        self.net = network(env, env.action_space.n)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        """The output of the network, and nothing else."""
        return self.net(observations(inputs)), {}


class Value(DeterministicMixin, Model):
    """The return to expect."""

    def __init__(self, env: Any) -> None:
        Model.__init__(self, **spaces(env))
        DeterministicMixin.__init__(self)
        self.net = network(env, 1)

    def compute(self, inputs: dict[str, Any], role: str = "") -> tuple[torch.Tensor, dict[str, Any]]:
        """The output of the network, and nothing else."""
        return self.net(observations(inputs)), {}


def make_agent(env: Any, memory: hr.memories.RandomMemory) -> Any:
    """PPO with our memory in the place of skrl's."""
    settings = {"rollouts": ROLLOUT, "learning_epochs": 4, "mini_batches": 4, "learning_rate": 1e-3}
    settings["experiment"] = {"write_interval": 0, "checkpoint_interval": 0}
    if SKRL_1:
        config: Any = {**ppo.PPO_DEFAULT_CONFIG, **settings}
        config["experiment"] = {**ppo.PPO_DEFAULT_CONFIG["experiment"], **settings["experiment"]}
    else:
        config = ppo.PPO_CFG(**settings)
    return ppo.PPO(
        models={"policy": Policy(env), "value": Value(env)}, memory=memory, cfg=config, **spaces(env)
    )


def episode_length(agent: Any, episodes: int = 5) -> float:
    """The mean length of episodes with the most likely action; 500 is the best there is."""
    policy, lengths = agent.models["policy"], []
    with gym.make("CartPole-v1") as env:
        for seed in range(episodes):
            observation, _ = env.reset(seed=seed)
            length, over = 0, False
            while not over:
                with torch.no_grad():
                    scores = policy.net(torch.as_tensor(observation, device=policy.device).unsqueeze(0))
                observation, _, terminated, truncated, _ = env.step(int(scores.argmax()))
                length, over = length + 1, terminated or truncated
            lengths.append(length)
    return float(np.mean(lengths))


def main(arguments: list[str] | None = None) -> float:
    """Trains, prints how long episodes last before and after, and saves the memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20_000, help="steps of each of the environments")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    torch.manual_seed(options.seed)
    vector = FlatActions(gym.make_vec("CartPole-v1", num_envs=NUM_ENVS, vectorization_mode="sync"))
    vector.reset(seed=options.seed)
    env = wrap_env(vector, verbose=False)
    # PPO of skrl 2.1 draws its epochs with `sample`: without replacement each row comes once.
    memory = hr.memories.RandomMemory(ROLLOUT, env.num_envs, env.device, replacement=False)
    agent = make_agent(env, memory)
    print(f"{0:7,} steps: episodes of {episode_length(agent):5.1f} steps")
    trainer = {"timesteps": options.steps, "headless": True, "disable_progressbar": True}
    SequentialTrainer(env=env, agents=agent, cfg=trainer).train()
    env.close()
    after = episode_length(agent)
    print(f"{options.steps:7,} steps: episodes of {after:5.1f} steps")

    with tempfile.TemporaryDirectory() as directory:
        path = memory.save(directory)
        copy = hr.memories.RandomMemory(ROLLOUT, env.num_envs, "cpu")
        copy.load(path)
        print(f"read back from {path.name}: {copy}")
    return after


if __name__ == "__main__":
    main()
