"""One named tensor of a memory: its storage, its flat view, and what may be written there."""

from __future__ import annotations

import math
from typing import Any

import torch

from headrace.memories.casts import as_tensor, check_cast, empty_value


class Slot:
    """Storage `(memory_size, num_envs, *size)` with its flat view `(memory_size * num_envs, *size)`."""

    __slots__ = ("dtype", "empty", "name", "row_shape", "size", "start", "stop", "storage", "view")

    def __init__(self, name: str, storage: torch.Tensor) -> None:
        self.name = name
        self.storage = storage
        self.size = tuple(storage.shape[2:])
        self.row_shape = storage.shape[1:]
        self.dtype = storage.dtype
        self.empty = empty_value(storage.dtype)
        self.view = storage.view(-1, *self.size)
        self._locate()

    @classmethod
    def create(
        cls,
        name: str,
        leading: tuple[int, int],
        size: tuple[int, ...],
        dtype: torch.dtype,
        device: torch.device,
    ) -> Slot:
        """A slot whose cells are all empty."""
        # A tensor made in inference mode could not be written outside of it.
        with torch.inference_mode(False):
            storage = torch.empty((*leading, *size), dtype=dtype, device=device)
            storage.fill_(empty_value(dtype))
            return cls(name, storage)

    def share(self) -> None:
        """Move the storage into shared memory; tensors obtained before follow it."""
        if self.storage.is_cpu:
            self.storage.share_memory_()  # type: ignore[no-untyped-call]
            self._locate()

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` lies in this storage."""
        return self.start <= tensor.data_ptr() < self.stop

    def admit(self, value: Any) -> tuple[torch.Tensor, int]:
        """A sample for this slot as a tensor `(n, *size)`, and n, with every check done.

        Raises:
            TypeError: neither a tensor nor an array.
            ValueError: another shape than `size` or `(n, *size)`, or a dtype that does not fit.
        """
        tensor = as_tensor(self.name, value)
        shape = tuple(tensor.shape)
        if shape == self.size:
            tensor = tensor.unsqueeze(0)
        elif len(shape) != len(self.size) + 1 or shape[1:] != self.size:
            several = ", ".join(["n", *map(str, self.size)])
            raise ValueError(f"{self.name}: expected shape {self.size} or ({several}), got {shape}")
        check_cast(self.name, tensor, self.dtype)
        return tensor, tensor.shape[0]

    def _locate(self) -> None:
        self.start = self.storage.data_ptr()
        self.stop = self.start + math.prod(self.storage.shape) * self.storage.element_size()
