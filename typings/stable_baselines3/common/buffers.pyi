"""What the replay buffer for SB3 uses of SB3, so that its types are checked where SB3 is not installed."""

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import DTypeLike, NDArray
from stable_baselines3.common.vec_env import VecNormalize

class BaseBuffer:
    buffer_size: int
    observation_space: Any
    action_space: Any
    obs_shape: tuple[int, ...] | dict[str, tuple[int, ...]]
    action_dim: int
    pos: int
    full: bool
    device: torch.device
    n_envs: int
    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
    ) -> None: ...
    def size(self) -> int: ...
    def reset(self) -> None: ...
    def to_torch(self, array: NDArray[Any], copy: bool = True) -> torch.Tensor: ...
    @staticmethod
    def _normalize_obs(obs: Any, env: VecNormalize | None = None) -> Any: ...
    @staticmethod
    def _normalize_reward(reward: NDArray[Any], env: VecNormalize | None = None) -> NDArray[np.float32]: ...

class ReplayBuffer(BaseBuffer):
    optimize_memory_usage: bool
    handle_timeout_termination: bool
    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: list[dict[str, Any]],
    ) -> None: ...
    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any: ...
    @staticmethod
    def _maybe_cast_dtype(dtype: DTypeLike) -> DTypeLike: ...
