"""Torch modules as policies on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import torch


def call_of_module(module: torch.nn.Module) -> Callable[[Any], Any]:
    """Returns a callable that gives the module tensors and returns its tensors as arrays, without gradients.

    The tensors share the memory of the arrays.
    """

    def call(observation: Any) -> Any:
        with torch.no_grad():
            returned = module(optree.tree_map(torch.from_numpy, observation))
        return optree.tree_map(_as_array, returned)

    return call


def _as_array(leaf: Any) -> Any:
    return leaf.numpy(force=True) if isinstance(leaf, torch.Tensor) else leaf
