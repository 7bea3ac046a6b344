"""DQN on CartPole, with Headrace's replay."""

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import headrace as hr

STEPS, BATCH, GAMMA = 50_000, 128, 0.99

if __name__ == "__main__":
    envs = gym.make_vec("CartPole-v1", num_envs=8)
    online, target = (nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    replay = hr.Replay.for_env(envs, [hr.Table.uniform(50_000)])
    writer = hr.TransitionWriter(replay, gamma=GAMMA, env=envs)
    observation, _ = envs.reset(seed=0)
    for step in range(STEPS // 8):
        action = online(torch.as_tensor(observation)).argmax(1).numpy()
        action = np.where(
            torch.rand(8).numpy() < max(0.05, 1 - step / 1000), envs.action_space.sample(), action
        )
        next_observation, reward, terminated, truncated, info = envs.step(action)
        writer.add(observation, action, reward, terminated, truncated, next_observation, info)
        observation = next_observation
        if step > 100:
            batch = replay.sample(BATCH, views=writer.views, to="torch")
            with torch.no_grad():
                value = target(batch["next_observation"]).max(1).values
                goal = batch["reward"] + batch["discount"] * value
            chosen = online(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]
            loss = nn.functional.smooth_l1_loss(chosen, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                target.load_state_dict(online.state_dict())
