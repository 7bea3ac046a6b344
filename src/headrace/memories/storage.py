"""The tensors of a memory and its write head: making, naming, sharing and copying them."""

from __future__ import annotations

from typing import Any

import torch

from headrace.memories.casts import as_tensor, check_cast
from headrace.memories.devices import parse_device
from headrace.memories.head import Head
from headrace.memories.order import Written
from headrace.memories.sizes import flat_size, kept_size, positive_integer
from headrace.memories.slots import Slot

RESERVED_NAME = "__headrace__"  # a key of the files that memories save
_PREFIX = "_tensor_"


class Storage:
    """Named tensors `(memory_size, num_envs, *size)` on one device, with one write head."""

    def __init__(self, memory_size: int, num_envs: int, device: str | torch.device | None) -> None:
        self.memory_size = positive_integer(memory_size, "memory_size")
        self.num_envs = positive_integer(num_envs, "num_envs")
        self.device = parse_device(device)
        self.tensors: dict[str, torch.Tensor] = {}
        self.tensors_view: dict[str, torch.Tensor] = {}
        self._slots: dict[str, Slot] = {}
        self._absent: set[str] = set()
        self._starts: set[int] = set()  # where the storages lie, to know a view of one
        self._head = Head()

    def __len__(self) -> int:
        flat, filled = self._head.get()
        return self.memory_size * self.num_envs if filled else flat

    @property
    def memory_index(self) -> int:
        """The row of the next sample."""
        return self._head.get()[0] // self.num_envs

    @memory_index.setter
    def memory_index(self, row: int) -> None:
        self._move_to(row, self.env_index)

    @property
    def env_index(self) -> int:
        """The environment of the next sample."""
        return self._head.get()[0] % self.num_envs

    @env_index.setter
    def env_index(self, env: int) -> None:
        self._move_to(self.memory_index, env)

    @property
    def filled(self) -> bool:
        """Whether every cell has been written since the memory was made or reset."""
        return self._head.get()[1]

    @filled.setter
    def filled(self, filled: bool) -> None:
        self._head.set(self._head.get()[0], bool(filled))

    def create_tensor(
        self, name: str, size: Any, dtype: torch.dtype | None = None, keep_dimensions: bool = False
    ) -> bool:
        """Make a tensor whose cells are empty: NaN, or 0 or False where the dtype has no NaN.

        Args:
            name: a Python identifier.
            size: an int; a sequence of ints; a Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple space
                of gymnasium or gym; or None, which makes nothing and remembers the name as absent.
            dtype: torch's default dtype if None.
            keep_dimensions: give each sample the shape of `size`, instead of a vector of as many elements.

        Returns:
            True if it was made; False if it was there with the same shape and dtype, or `size` is None.

        Raises:
            TypeError: `dtype` is not a torch dtype.
            ValueError: the name or the size is none, or the name exists with another shape or dtype.
        """
        if not _is_tensor_name(name):
            raise ValueError(f"name: expected a Python identifier other than {RESERVED_NAME}, got {name!r}")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise TypeError(f"{name}: expected a torch dtype or None, got {dtype!r}")
        if size is None:
            if name not in self._slots:
                self._absent.add(name)
            return False
        shape = kept_size(size) if keep_dimensions else flat_size(size)
        if name in self._slots:
            self._check_same(self._slots[name], shape, dtype)
            return False
        self._install(self._new_slot(name, shape, torch.get_default_dtype() if dtype is None else dtype))
        return True

    def get_tensor_names(self) -> tuple[str, ...]:
        """The names of the tensors, in alphabetical order."""
        return tuple(sorted(self.tensors))

    def get_tensor_by_name(self, name: str, keepdim: bool = True) -> torch.Tensor:
        """The live storage `(memory_size, num_envs, *size)`, or its flat view `(cells, *size)`.

        Raises:
            KeyError: no tensor has this name.
        """
        slot = self._slot(name)
        return slot.storage if keepdim else slot.view

    def set_tensor_by_name(self, name: str, tensor: torch.Tensor) -> None:
        """Copy a whole tensor into the storage, in place and without gradient; the write head stays.

        Args:
            name: the tensor to set.
            tensor: of the storage's shape, or 0-d to fill it.

        Raises:
            KeyError: no tensor has this name.
            TypeError: neither a torch tensor nor a NumPy array.
            ValueError: another shape, or a dtype that does not fit.
        """
        slot = self._slot(name)
        value = as_tensor(name, tensor)
        if value.ndim and value.shape != slot.storage.shape:
            raise ValueError(
                f"{name}: expected shape {tuple(slot.storage.shape)} or (), got {tuple(value.shape)}"
            )
        check_cast(name, value, slot.dtype)
        # A permuted view of the storage would be read while it is being written.
        slot.storage.copy_(value.clone() if slot.holds(value) else value)

    def reset(self) -> None:
        """Forget what is stored: the tensors keep their values until they are overwritten."""
        self._head.set(0, False)

    def share_memory(self) -> None:
        """Move the tensors, the write head and the flag into shared memory, for other processes to see.

        CUDA tensors stay where they are: they are shared by handle. A second call does nothing.
        """
        if self._head.is_shared():
            return
        for slot in self._slots.values():
            slot.share()
        self._head.share()
        self._starts = {slot.start for slot in self._slots.values()}

    def _written(self) -> Written:
        return Written(self.memory_size, self.num_envs, *self._head.get())

    def _move_to(self, row: int, env: int) -> None:
        if not 0 <= row < self.memory_size or not 0 <= env < self.num_envs:
            raise ValueError(
                f"expected memory_index 0 to {self.memory_size - 1} and env_index 0 to {self.num_envs - 1}, "
                f"got {row} and {env}"
            )
        self._head.set(int(row) * self.num_envs + int(env), self.filled)

    def _slot(self, name: str) -> Slot:
        try:
            return self._slots[name]
        except KeyError:
            raise KeyError(
                f"no tensor {name!r}; there are {', '.join(self.get_tensor_names()) or 'none'}"
            ) from None

    def _check_same(self, slot: Slot, shape: tuple[int, ...], dtype: torch.dtype | None) -> None:
        if slot.size != shape:
            raise ValueError(f"{slot.name} exists with size {slot.size}, got {shape}")
        if dtype not in (None, slot.dtype):
            raise ValueError(f"{slot.name} exists with dtype {slot.dtype}, got {dtype}")

    def _new_slot(self, name: str, size: tuple[int, ...], dtype: torch.dtype) -> Slot:
        return Slot.create(name, (self.memory_size, self.num_envs), size, dtype, self.device)

    def _install(self, slot: Slot) -> None:
        if self._head.is_shared():
            slot.share()
        self._slots[slot.name] = slot
        self._starts.add(slot.start)
        self._absent.discard(slot.name)
        self.tensors[slot.name] = slot.storage
        self.tensors_view[slot.name] = slot.view
        setattr(self, _PREFIX + slot.name, slot.storage)

    def __getstate__(self) -> dict[str, Any]:
        shared = self._head.is_shared()
        derived = {
            "tensors",
            "tensors_view",
            "_slots",
            "_starts",
            "_head",
            *(_PREFIX + name for name in self._slots),
        }
        state = {key: value for key, value in self.__dict__.items() if key not in derived}
        # Bytes make a copy however they travel; a tensor on its way to a process would move to shared memory.
        return state | {
            "_head": self._head.cell if shared else self._head.get(),
            "_slots": {
                name: slot.storage if shared else _to_bytes(slot) for name, slot in self._slots.items()
            },
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        slots, head = state.pop("_slots"), state.pop("_head")
        self.__dict__.update(state, tensors={}, tensors_view={}, _slots={}, _starts=set())
        self._head = Head(head if isinstance(head, torch.Tensor) else None)
        if not isinstance(head, torch.Tensor):
            self._head.set(*head)
        for name, kept in slots.items():
            self._install(Slot(name, kept if isinstance(kept, torch.Tensor) else self._from_bytes(*kept)))

    def _from_bytes(self, data: Any, dtype: torch.dtype, size: tuple[int, ...]) -> torch.Tensor:
        tensor = torch.from_numpy(data).view(dtype).view(self.memory_size, self.num_envs, *size)
        return tensor.to(self.device, copy=True)


def _is_tensor_name(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier() and name != RESERVED_NAME


def _to_bytes(slot: Slot) -> tuple[Any, torch.dtype, tuple[int, ...]]:
    return slot.storage.cpu().reshape(-1).view(torch.uint8).numpy(), slot.dtype, slot.size
