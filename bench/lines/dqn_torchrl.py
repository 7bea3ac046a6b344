"""DQN on CartPole, with the replay buffer of TorchRL; see `dqn_sb3.py` for the last observations."""

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from tensordict import TensorDict
from torch import nn
from torchrl.data import LazyTensorStorage, ReplayBuffer

STEPS, BATCH, GAMMA = 50_000, 128, 0.99

if __name__ == "__main__":
    envs = gym.make_vec("CartPole-v1", 8, "sync", {"autoreset_mode": AutoresetMode.SAME_STEP})
    online, target = (nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2)) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
    buffer = ReplayBuffer(storage=LazyTensorStorage(50_000), batch_size=BATCH)
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
        columns = {"observation": observation, "action": action, "last": last, "terminated": terminated}
        columns["reward"] = reward.astype(np.float32)
        buffer.extend(TensorDict(columns, batch_size=8))
        observation = next_observation
        if step > 100:
            batch = buffer.sample()
            with torch.no_grad():
                value = target(batch["last"]).max(1).values
                goal = batch["reward"] + GAMMA * ~batch["terminated"] * value
            chosen = online(batch["observation"]).gather(1, batch["action"][:, None])[:, 0]
            loss = nn.functional.smooth_l1_loss(chosen, goal)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                target.load_state_dict(online.state_dict())
