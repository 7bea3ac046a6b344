"""Environments whose values are torch tensors, on any device."""

# Rules: collectors CD2

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.envs.columns import EnvironmentColumns
from headrace.envs.protocol import Indices
from headrace.trees import map_leaves

if TYPE_CHECKING:
    import torch


class TensorBoundary:
    """Carries values between NumPy columns and environments of torch tensors.

    Args:
        device: of the environments.
        gives_tensors: whether the environments are given tensors as actions; else NumPy arrays.

    Attributes:
        device, gives_tensors: see above.

    >>> import torch
    >>> boundary = TensorBoundary(torch.device("cpu"), gives_tensors=True)
    >>> boundary.arrays({"reward": torch.ones(2, requires_grad=True)}), boundary.actions(np.array([3]))
    ({'reward': array([1., 1.], dtype=float32)}, tensor([3]))
    """

    def __init__(self, device: torch.device, *, gives_tensors: bool) -> None:
        self.device = device
        self.gives_tensors = gives_tensors

    def actions(self, tree: Any) -> Any:
        """Returns a tree of arrays as tensors on the device, which the environment may keep and change."""
        if not self.gives_tensors:
            return tree
        import torch

        # The arrays are the policy's own, so the tensors are copies in any case.
        return map_leaves(lambda array: torch.tensor(array, device=self.device), tree)

    def arrays(self, tree: Any) -> Any:
        """Returns the tree with NumPy arrays for its tensors. Waits for the device once, whatever their number."""
        if self.device.type != "cuda":
            return map_leaves(_as_array, tree)
        import torch

        fetched = map_leaves(_begin_copy, tree)
        torch.cuda.current_stream(self.device).synchronize()
        return map_leaves(_as_array, fetched)


class NewestTensors:
    """Keeps the newest observations of n environments as tensors, for a policy on their device.

    Args:
        columns: of the environments.
        num_envs: n.
    """

    def __init__(self, columns: EnvironmentColumns, num_envs: int) -> None:
        self._leaf_keys = columns.leaf_keys
        self._wanted = {
            name: ((num_envs, *spec.shape), _torch_dtype(spec.dtype))
            for name, spec in columns.observed.columns.items()
        }
        self._newest: dict[str, torch.Tensor] | None = None

    def see(self, observation: Any, envs: Indices | None) -> None:
        """Takes observations `[n, ...]`, of which only the rows of `envs` (None: all) are new."""
        found = {name: _leaf(observation, keys) for name, keys in self._leaf_keys}
        if not all(self._fits(name, leaf) for name, leaf in found.items()):
            self._newest = None
        elif envs is None:
            self._newest = found
        elif self._newest is not None:
            self._newest = {name: _merged(self._newest[name], leaf, envs) for name, leaf in found.items()}

    def forget(self) -> None:
        """Forgets the observations: the environments were put into another state."""
        self._newest = None

    def on(self, device: torch.device) -> Mapping[str, torch.Tensor] | None:
        """Returns columns `[n, ...]` if all are on this device; None otherwise."""
        if self._newest is None or any(leaf.device != device for leaf in self._newest.values()):
            return None
        return self._newest

    def _fits(self, name: str, leaf: Any) -> bool:
        """Whether the leaf can stand for its column: a tensor with the shape and dtype of the space."""
        import torch

        return isinstance(leaf, torch.Tensor) and (tuple(leaf.shape), leaf.dtype) == self._wanted[name]


def boundary_of(observation: Any, device: str | None) -> TensorBoundary | None:
    """Returns the boundary of environments that gave this observation; None if it has no tensors.

    Environments on the CPU may give tensors and still compute with NumPy, so there tensors are given only on request.

    Args:
        observation: a tree.
        device: the device that was asked for; None: the environments' own.
    """
    found = _first_tensor(observation)
    if found is None:
        return None
    return TensorBoundary(found.device, gives_tensors=device is not None or found.device.type != "cpu")


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Returns the dtype of torch; None if it has none of this kind."""
    import torch

    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        return None


def _first_tensor(tree: Any) -> Any:
    # Where torch is not loaded there are no tensors.
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    found: list[Any] = []
    map_leaves(lambda leaf: found.append(leaf) if isinstance(leaf, torch.Tensor) else None, tree)
    return found[0] if found else None


def _as_array(leaf: Any) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor):
        return leaf.numpy(force=True)
    if type(leaf) is np.ndarray and leaf.dtype == object:
        return _each(_as_array, leaf)
    return leaf


def _begin_copy(leaf: Any) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
        # torch keeps pinned memory for later copies, so this costs no allocation at each step.
        host = torch.empty(leaf.shape, dtype=leaf.dtype, pin_memory=True)
        return host.copy_(leaf.detach(), non_blocking=True)
    if type(leaf) is np.ndarray and leaf.dtype == object:
        return _each(_begin_copy, leaf)
    return leaf


def _each(function: Any, objects: Any) -> Any:
    """Returns an array of objects, such as one observation for each environment, with the trees in it mapped."""
    mapped = np.empty_like(objects)
    for i, tree in enumerate(objects.flat):
        mapped.flat[i] = map_leaves(function, tree)
    return mapped


def _leaf(tree: Any, keys: tuple[Any, ...]) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def _merged(old: torch.Tensor, new: torch.Tensor, envs: Indices) -> torch.Tensor:
    """Returns a copy of `old` with the rows of `envs` from `new`."""
    import torch

    index = torch.from_numpy(envs).to(old.device)
    merged = old.clone()
    merged[index] = new[index]
    return merged
