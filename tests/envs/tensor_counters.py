"""Counter environments of torch tensors, as simulators on a GPU have them."""

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from headrace.testing.envs import CounterEnv, counter_env_fns
from headrace.trees import map_leaves


class RemoteTensor(torch.Tensor):
    """A tensor on the CPU that NumPy cannot read, as if it were on another device."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__array__ or (func is torch.Tensor.numpy and not (kwargs or {}).get("force")):
            raise TypeError("can't convert a tensor on another device to numpy. Use Tensor.cpu()")
        return super().__torch_function__(func, types, args, kwargs or {})


def remote(value, device="cpu"):
    """Returns a tree of arrays as tensors; leaves of other types as they are."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        objects = np.empty_like(value)
        for i, each in enumerate(value):
            objects[i] = None if each is None else remote(each, device)
        return objects
    if not isinstance(value, np.ndarray | np.generic | bool | float | int):
        return value
    tensor = torch.tensor(value, device=device)
    return tensor.as_subclass(RemoteTensor) if tensor.device.type == "cpu" else tensor


class TensorMixin:
    """Everything that goes in and out is a tensor on `device`; actions given are in `received`."""

    device = "cpu"
    asks_for_tensors = True

    def reset(self, **options):
        return map_leaves(self._remote, super().reset(**options))

    def step(self, action):
        if self.asks_for_tensors:
            assert isinstance(action, torch.Tensor), type(action)
            assert action.device.type == torch.device(self.device).type
        array = np.asarray(action.cpu() if isinstance(action, torch.Tensor) else action)
        return map_leaves(self._remote, super().step(array))

    def _remote(self, value):
        return remote(value, self.device)


class TensorCounterEnv(TensorMixin, CounterEnv):
    """A single environment."""


class TensorVectorEnv(TensorMixin, SyncVectorEnv):
    """A vector environment."""


def tensor_vector_env(lengths, mode, *, device="cpu", asks_for_tensors=True, kind=TensorVectorEnv, **options):
    """Returns a vector environment of tensors, in one of gymnasium's autoreset modes."""
    env = kind(counter_env_fns(lengths, **options), autoreset_mode=AutoresetMode[mode.upper()])
    env.device, env.asks_for_tensors = device, asks_for_tensors
    return env
