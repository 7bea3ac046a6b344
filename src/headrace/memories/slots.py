"""One named tensor of a memory: its storage, its flat view, and what may be written there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from headrace.memories.casts import as_tensor, check_cast, empty_value, has_numpy_dtype

_SMALL_ROW = 1 << 17  # bytes; NumPy starts a copy sooner, torch uses several threads for a large one


class Slot:
    """Storage `(memory_size, num_envs, *size)` with its flat view `(memory_size * num_envs, *size)`.

    `array` is the flat view again, as NumPy sees it, where small rows are written quickest; else None.
    """

    __slots__ = ("array", "dtype", "empty", "name", "row_shape", "size", "start", "stop", "storage", "view")

    def __init__(self, name: str, storage: torch.Tensor) -> None:
        self.name = name
        self.storage = storage
        self.size = tuple(storage.shape[2:])
        self.row_shape = tuple(storage.shape[1:])
        self.dtype = storage.dtype
        self.empty = empty_value(storage.dtype)
        self.view = storage.view(-1, *self.size)
        self.locate()

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
            self.locate()

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

    def locate(self) -> None:
        """Note where the storage lies; to be called again when it moved into shared memory."""
        self.start = self.storage.data_ptr()
        self.stop = self.start + self.storage.numel() * self.storage.element_size()
        row_bytes = math.prod(self.row_shape) * self.storage.element_size()
        quick = self.storage.is_cpu and row_bytes <= _SMALL_ROW and has_numpy_dtype(self.dtype)
        self.array: np.ndarray[Any, Any] | None = self.view.numpy() if quick else None

    def write(self, flat: int, count: int, value: Any) -> None:
        """Write rows, or one value for all of them, from the flat index `flat` on."""
        array = self.array
        if self.storage.data_ptr() != self.start:
            self.locate()  # Sending the tensor to another process moved it, and the array's memory is gone.
            array = self.array
        if array is not None and not isinstance(value, torch.Tensor):
            array[flat : flat + count] = value
        else:
            self.view[flat : flat + count] = (
                torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            )
