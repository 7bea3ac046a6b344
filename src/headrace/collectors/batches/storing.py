"""Batches as torch tensors on the device of the learner."""

# Rules: collectors CD2

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from headrace.batches.conversion import as_tensor
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
        return lambda batch: map_batch(lambda leaf: as_tensor(leaf).to(wanted), batch)
    side = SideStream(wanted)

    def store(batch: Batch) -> Batch:
        stored, copied = side.start(map_batch(as_tensor, batch), map_batch)
        tensors: list[torch.Tensor] = []
        map_batch(tensors.append, stored)
        side.finish(tensors, copied)
        return stored

    return store
