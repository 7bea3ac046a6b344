"""Batches as torch tensors on the device of the learner."""

# Rules: collectors CD2

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.batches.conversion import as_tensor, over_same_memory
from headrace.batches.torch_devices import SideStream, torch_device
from headrace.collectors.batches.batch import Batch, map_batch

Store: TypeAlias = Callable[[Batch], Batch]


def store_on(device: str) -> Store:
    """Returns a function that copies a batch to a torch device other than the CPU.

    To CUDA it copies from pinned memory on a stream of its own. The stream of the caller waits for that.

    Raises:
        ImportError: torch is not installed.
        ValueError: there is no such device.
    """
    wanted = torch_device("storing_device", device)
    if wanted.type != "cuda":
        return lambda batch: map_batch(lambda leaf: _readable(leaf).to(wanted), batch)
    side = SideStream(wanted)

    def store(batch: Batch) -> Batch:
        stored, copied = side.start(map_batch(_readable, batch), map_batch)
        tensors: list[torch.Tensor] = []
        map_batch(tensors.append, stored)
        side.finish(tensors, copied)
        return stored

    return store


def _readable(leaf: NDArray[Any] | torch.Tensor) -> torch.Tensor:
    """Returns a tensor that is only read: read-only arrays need no copy for it."""
    return as_tensor(over_same_memory(leaf) if isinstance(leaf, np.ndarray) else leaf)
