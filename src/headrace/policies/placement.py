"""Policies and their inputs on torch devices."""

# Rules: collectors CD2, CP5

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch

from headrace.batches.conversion import as_tensor
from headrace.batches.torch_devices import torch_device
from headrace.trees import map_leaves


def placed(module: torch.nn.Module, device: str) -> torch.nn.Module:
    """Returns the module itself if it is on the device, else a copy there.

    Raises:
        ValueError: there is no such device.

    >>> module = torch.nn.Linear(2, 1)
    >>> placed(module, "cpu") is module
    True
    """
    wanted = present_device(device)
    if all(tensor.device == wanted for tensor in _tensors(module)):
        return module
    return copy.deepcopy(module).to(wanted)


def present_device(device: str) -> torch.device:
    """Returns a device of this machine with its index, as tensors name it: "cuda" is the present one.

    Raises:
        ValueError: there is no such device.
    """
    return torch.empty(0, device=torch_device("policy_device", device)).device


def device_of(module: torch.nn.Module) -> torch.device:
    """Returns the device of a module's first parameter or buffer; the CPU if it has none."""
    first = next(_tensors(module), None)
    return torch.device("cpu") if first is None else first.device


def tensors_on(device: torch.device) -> Callable[[Any], Any]:
    """Returns a function that makes tensors of a tree of arrays: over their memory on the CPU, else copies there."""
    if device.type == "cpu":
        return _over_memory

    def copy_of(array: Any) -> torch.Tensor:
        # From memory that is not pinned the call returns when the array was read.
        return as_tensor(array).to(device, non_blocking=True)

    return lambda tree: map_leaves(copy_of, tree)


def _over_memory(tree: Any) -> Any:
    # Most observations are one array that torch can use: the general way costs more than the tensor.
    if type(tree) is np.ndarray and tree.flags.carray:
        return torch.from_numpy(tree)
    return map_leaves(as_tensor, tree)


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    return chain(module.parameters(), module.buffers())
