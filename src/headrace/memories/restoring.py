"""How the rows of a file go into a memory: checked whole, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headrace.memories.casts import check_cast
from headrace.memories.files.snapshot import Snapshot
from headrace.memories.order import chronological
from headrace.memories.slots import Slot


@dataclass(frozen=True, slots=True)
class Restored:
    """Rows to write from the first cell on, the head, and the tensors to make first (name, size, dtype)."""

    rows: Mapping[str, torch.Tensor]
    flat: int
    filled: bool
    missing: list[tuple[str, tuple[int, ...], torch.dtype]]


def restored(snapshot: Snapshot, slots: Mapping[str, Slot], memory_size: int, num_envs: int) -> Restored:
    """Fit a snapshot into a memory with these tensors and sizes.

    With the same number of rows all stays as it was. Otherwise each environment keeps its newest samples.

    Raises:
        KeyError: the snapshot lacks a tensor.
        ValueError: another number of environments, another size, or a dtype that does not fit.
    """
    written = snapshot.written
    if written.num_envs != num_envs:
        raise ValueError(f"num_envs: expected a file of {num_envs} environments, got {written.num_envs}")
    _check_tensors(snapshot, slots)
    missing = [
        (name, tuple(rows.shape[1:]), snapshot.dtypes[name])
        for name, rows in snapshot.rows.items()
        if name not in slots
    ]
    if written.memory_size == memory_size:
        return Restored(snapshot.rows, written.flat, written.filled, missing)
    order = chronological(written, memory_size)
    filled = len(order) == memory_size * num_envs
    rows = {name: rows.index_select(0, order) for name, rows in snapshot.rows.items()}
    return Restored(rows, 0 if filled else len(order), filled, missing)


def _check_tensors(snapshot: Snapshot, slots: Mapping[str, Slot]) -> None:
    for name, slot in slots.items():
        if name not in snapshot.rows:
            raise KeyError(
                f"the file has no tensor {name!r}; it has {', '.join(sorted(snapshot.rows)) or 'none'}"
            )
        rows = snapshot.rows[name]
        if tuple(rows.shape[1:]) != slot.size:
            raise ValueError(f"{name}: expected size {slot.size}, got {tuple(rows.shape[1:])} in the file")
        check_cast(name, rows, slot.dtype)
