"""Contents of a memory's file: its rows, and the position of the head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from headrace.memories.order import Written
from headrace.memories.storage import RESERVED_NAME

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Rows `(n, *size)` in the order of storage, the part of them that is written, and dtypes for new tensors."""

    rows: Mapping[str, torch.Tensor]
    written: Written
    dtypes: Mapping[str, torch.dtype]


def header(written: Written) -> torch.Tensor:
    """Returns the header, int64[6], that describes the tensors stored with it."""
    row, env = divmod(written.flat, written.num_envs)
    return torch.tensor(
        [_VERSION, written.memory_size, written.num_envs, row, env, written.filled], dtype=torch.int64
    )


def from_storages(tensors: dict[str, torch.Tensor], origin: object) -> Snapshot:
    """A snapshot of whole storages `(memory_size, num_envs, *size)` beside their header.

    Without a header (skrl writes none) a memory counts as written up to the last cell where some float tensor
    is not NaN, and as full if it has no float tensor.

    Args:
        tensors: by key of the file.
        origin: the file, for messages.

    Raises:
        ValueError: the tensors are not those of a memory.
    """
    head = tensors.pop(RESERVED_NAME, None)
    if head is None and not tensors:
        raise ValueError(f"{origin}: expected the tensors of a memory, got none")
    for name, tensor in tensors.items():
        if not name.isidentifier() or tensor.ndim < 2 or 0 in tensor.shape:
            raise ValueError(
                f"{origin}: expected tensors (rows, environments, ...), got {name} {tuple(tensor.shape)}"
            )
    written = _infer(tensors) if head is None else _parse(head, origin)
    for name, tensor in tensors.items():
        if tensor.shape[:2] != (written.memory_size, written.num_envs):
            raise ValueError(
                f"{origin}: expected {written.memory_size} rows of {written.num_envs} environments, "
                f"got {tuple(tensor.shape[:2])} in {name}"
            )
    rows = {name: tensor.flatten(0, 1) for name, tensor in tensors.items()}
    return Snapshot(rows, written, {name: tensor.dtype for name, tensor in tensors.items()})


def _parse(head: torch.Tensor, origin: object) -> Written:
    if head.dtype is not torch.int64 or head.shape != (6,):
        raise ValueError(
            f"{origin}: expected {RESERVED_NAME} as int64[6], got {head.dtype} {tuple(head.shape)}"
        )
    version, memory_size, num_envs, row, env, filled = head.tolist()
    if version != _VERSION:
        raise ValueError(f"{origin}: expected version {_VERSION} of the format, got {version}")
    if not (0 <= row < memory_size and 0 <= env < num_envs and filled in (0, 1)):
        raise ValueError(
            f"{origin}: expected a head within the memory, got {head.tolist()} in {RESERVED_NAME}"
        )
    return Written(memory_size, num_envs, row * num_envs + env, bool(filled))


def _infer(tensors: dict[str, torch.Tensor]) -> Written:
    memory_size, num_envs = next(iter(tensors.values())).shape[:2]
    floats = [tensor.flatten(0, 1).flatten(1) for tensor in tensors.values() if tensor.is_floating_point()]
    cells = memory_size * num_envs
    last = cells - 1 if not floats else max(_last_written(rows) for rows in floats)
    filled = last == cells - 1
    return Written(memory_size, num_envs, 0 if filled else last + 1, filled)


def _last_written(rows: torch.Tensor) -> int:
    written = rows.isnan().logical_not().any(dim=1).nonzero()
    return int(written[-1]) if len(written) else -1
