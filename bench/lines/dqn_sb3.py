"""DQN on CartPole, with the replay buffer of Stable-Baselines3.

The environments reset themselves in the same step: in the mode next_step the buffer would store the resets as
transitions. A step that was cut keeps its last observation, and bootstraps.
"""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.buffers import ReplayBuffer
from torch import nn

STEPS, BATCH, GAMMA = 50_000, 128, 0.99

if __name__ == "__main__":
    envs = gym.make_vec("CartPole-v1", 8, "sync", {"autoreset_mode": AutoresetMode.SAME_STEP})
    online, target = (nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    spaces = envs.single_observation_space, envs.single_action_space
    buffer = ReplayBuffer(50_000, *spaces, "cpu", n_envs=8, handle_timeout_termination=False)
    observation, _ = envs.reset(seed=0)
    for step in range(STEPS // 8):
        action = online(torch.as_tensor(observation)).argmax(1).numpy()
        action = np.where(
            torch.rand(8).numpy() < max(0.05, 1 - step / 1000), envs.action_space.sample(), action
        )
        next_observation, reward, terminated, truncated, info = envs.step(action)
        last, ended = next_observation.copy(), terminated | truncated
        if ended.any():
            last[ended] = np.stack(info["final_obs"][ended])
        buffer.add(observation, last, action, reward, terminated, [{}] * 8)
        observation = next_observation
        if step > 100:
            batch = buffer.sample(BATCH)
            with torch.no_grad():
                value = target(batch.next_observations).max(1).values
                goal = batch.rewards[:, 0] + GAMMA * (1 - batch.dones[:, 0]) * value
            chosen = online(batch.observations).gather(1, batch.actions)[:, 0]
            loss = nn.functional.smooth_l1_loss(chosen, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                target.load_state_dict(online.state_dict())
