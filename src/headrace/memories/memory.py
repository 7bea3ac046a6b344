"""Base class of memories: writes to a circular buffer, reads copies, saves and loads."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headrace.memories import files
from headrace.memories.readable import Readable
from headrace.memories.restoring import restored
from headrace.memories.slots import Slot

_logger = logging.getLogger(__name__)


class Memory(Readable):
    """Circular buffers of named tensors `(memory_size, num_envs, *size)`; subclasses add `sample`.

    Derive from it to choose rows in another way: override `sample` and use `sequence_starts`,
    `sequence_indexes` and `sample_by_index`. The interface is that of skrl's memories, so skrl's agents run on it.

    Args:
        memory_size: rows.
        num_envs: environments, each a column.
        device: of the tensors; None is `cuda:0` if there is one, else the CPU.
        export: saves the memory each time that it is full, before a row is overwritten.
        export_format: "pt", "npz" or "csv".
        export_directory: where to save; the working directory if empty.
        episode_ends: tensors that mark the last step of an episode where they are not zero. Sequences do not
            cross such a step. Names that are not stored are ignored; `()` lets sequences cross.

    Raises:
        TypeError: `memory_size` or `num_envs` is not an integer.
        ValueError: a size below 1, no such device, or no such format.

    Example:
        >>> memory = Memory(memory_size=2, num_envs=4, device="cpu")
        >>> memory.create_tensor("rewards", size=1, dtype=torch.float32)
        True
        >>> memory.add_samples(rewards=torch.ones(4, 1))
        >>> len(memory), memory.memory_index, memory.filled
        (4, 1, False)
        >>> [[rewards]] = memory.sample_all(["rewards"])
        >>> rewards.shape
        torch.Size([4, 1])
        >>> memory
        Memory(memory_size=2, num_envs=4, device=cpu, 4 of 8 samples, rewards: (2, 4, 1) float32)
    """

    def __init__(
        self,
        memory_size: int,
        num_envs: int = 1,
        device: str | torch.device | None = None,
        export: bool = False,
        export_format: str = "pt",
        export_directory: str | PathLike[str] = "",
        *,
        episode_ends: Sequence[str] = ("terminated", "truncated", "dones"),
    ) -> None:
        super().__init__(memory_size, num_envs, device, episode_ends)
        self.export = export
        self.export_format = files.checked_format(export_format)
        self.export_directory = export_directory
        self._skipped: set[str] = set()

    def __repr__(self) -> str:
        slots = [self._slots[name] for name in self.get_tensor_names()]
        tensors = [f"{s.name}: {tuple(s.storage.shape)} {str(s.dtype).removeprefix('torch.')}" for s in slots]
        fields = [
            f"memory_size={self.memory_size}",
            f"num_envs={self.num_envs}",
            f"device={self.device}",
            f"{len(self)} of {self.memory_size * self.num_envs} samples",
        ]
        return f"{type(self).__name__}({', '.join([*fields, *tensors])})"

    def add_samples(self, /, **tensors: Any) -> None:
        """Writes samples at the head and moves it on; a call that raises changes nothing.

        A sample of a tensor has shape `size` (one environment) or `(n, *size)`: n environments, or n steps if
        `num_envs` is 1. Names that are no tensor of this memory, and None, are skipped. A tensor of the
        memory that is left out gets its empty value, so that no old value stands beside a new one.

        Args:
            **tensors: a torch tensor or NumPy array for each name.

        Raises:
            TypeError: a value is neither a tensor nor an array.
            ValueError: nothing to add; shapes or numbers of samples differ; a dtype does not fit; or there are more
                environments than the rest of the row can hold.
        """
        samples, count = self._admitted(tensors)
        flat, filled = self._head.get()
        room = self.num_envs - flat % self.num_envs
        if self.num_envs > 1 and count > room:
            raise ValueError(
                f"expected at most {room} samples, since env_index is {flat % self.num_envs} "
                f"of {self.num_envs} environments, got {count}"
            )
        if count <= room:
            self._write(samples, flat, count)
            self._advance(flat, filled, count)
        else:
            self._add_steps(samples, flat, filled, count)

    def _admitted(self, tensors: dict[str, Any]) -> tuple[dict[str, Any], int]:
        samples: dict[str, Any] = {}
        count = -1
        for name, value in tensors.items():
            slot = self._slots.get(name)
            if slot is None or value is None:
                if value is not None and name not in self._skipped:
                    self._log_skipped(name)
                continue
            sample: Any = self._as_array(slot, value)
            if sample is None:
                sample, number = slot.admit(value)
                if any(other.holds(sample) for other in self._slots.values()):
                    sample = (
                        sample.clone()
                    )  # Writing one tensor must not change what another is about to get.
            else:
                number = len(sample)
            if count not in (-1, number):
                raise ValueError(f"{name}: expected {count} samples as in {', '.join(samples)}, got {number}")
            count = number
            samples[name] = sample
        if not samples:
            raise ValueError(
                f"nothing to add: expected one of {self.get_tensor_names()} as a tensor, got {tuple(tensors)}"
            )
        return samples, count

    def _as_array(self, slot: Slot, value: Any) -> np.ndarray[Any, Any] | None:
        """Returns samples `(n, *size)` that can be written without a cast, the most frequent case; else None."""
        if slot.array is None or type(value) is not torch.Tensor:
            return None
        if value._base is not None and value.untyped_storage().data_ptr() in self._starts:
            return None  # It may be a view of this memory's own tensors.
        try:
            array: np.ndarray[Any, Any] = value.numpy()
        except (TypeError, RuntimeError):  # on another device, sparse, or with a gradient
            return None
        shape, size = array.shape, slot.size
        if array.dtype != slot.array.dtype:
            return None
        if shape == size:
            return array[np.newaxis]
        return (
            array if shape == slot.row_shape or (shape[1:] == size and len(shape) == len(size) + 1) else None
        )

    def _log_skipped(self, name: str) -> None:
        self._skipped.add(name)
        _logger.info("add_samples skips %r: the memory has no such tensor", name)

    def _write(self, samples: dict[str, Any], flat: int, count: int) -> None:
        for name, slot in self._slots.items():
            slot.write(flat, count, samples.get(name, slot.empty))

    def _add_steps(self, samples: dict[str, Any], flat: int, filled: bool, count: int) -> None:
        # One environment and more than one step. Of more steps than rows the first are overwritten at once:
        # they are not written at all, except where each completed lap is exported.
        done = 0 if self.export else max(0, count - self.memory_size)
        while done < count:
            start, row = done, (flat + done) % self.memory_size
            stop = min(count, done + self.memory_size - row)
            self._write({name: sample[done:stop] for name, sample in samples.items()}, row, stop - done)
            done = stop
            if self.export:
                self._advance(row, filled, done - start)
                filled = self.filled
        if not self.export:
            self._advance(flat, filled, count)

    def _advance(self, flat: int, filled: bool, count: int) -> None:
        if self.device.type == "cuda" and self._head.is_shared():
            torch.cuda.current_stream(self.device).synchronize()  # The copies are only queued.
        cells = self.memory_size * self.num_envs
        self._head.set((flat + count) % cells, filled or flat + count >= cells)
        if self.export and count and flat + count == cells:
            self.save(self.export_directory, self.export_format)

    def save(self, directory: str | PathLike[str] = "", format: str = "pt") -> Path:  # noqa: A002
        """Writes the memory to `<directory>/memories/<time>_memory_<id>.<format>`; the file is complete or absent.

        Args:
            directory: `export_directory` if empty, and the working directory if that is empty too.
            format: "pt" (a dict of tensors), "npz" (an array per name) or "csv" (the stored rows).

        Returns:
            The path of the file.

        Raises:
            ValueError: an unknown format, or a dtype that the format cannot hold.
        """
        folder = Path(directory or self.export_directory) / "memories"
        return files.save(folder, format, self.tensors, self._written())

    def load(self, path: str | PathLike[str]) -> None:
        """Reads a file that `save` or a memory of skrl wrote; a refused file changes nothing.

        The data are written into existing tensors; other tensors of the file are created. If the file has another
        number of rows, each environment keeps its newest samples, the oldest of them in row 0.

        Raises:
            FileNotFoundError: no such file.
            KeyError: the file lacks a tensor of this memory.
            ValueError: not a file of a memory, or its environments, sizes or dtypes do not fit.
        """
        snapshot = files.load(Path(path), self.num_envs)
        plan = restored(snapshot, self._slots, self.memory_size, self.num_envs)
        made = [self._new_slot(name, size, dtype) for name, size, dtype in plan.missing]
        for slot in made:
            self._install(slot)
        self._head.set(0, False)  # A reader in another process counts nothing that is half there.
        for name, rows in plan.rows.items():
            slot = self._slots[name]
            slot.view[: len(rows)] = rows
            slot.view[len(rows) :] = slot.empty
        self._head.set(plan.flat, plan.filled)
        self.sampling_indexes = None
