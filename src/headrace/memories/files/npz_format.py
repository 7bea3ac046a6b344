"""`npz`: a zip of NumPy arrays, one for each name."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np
import torch

from headrace.memories.casts import as_tensor, has_numpy_dtype
from headrace.memories.files.snapshot import Snapshot, from_storages, header
from headrace.memories.order import Written
from headrace.memories.storage import RESERVED_NAME


def check_dtypes(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse dtypes that NumPy lacks.

    Raises:
        ValueError: with the tensor's name and dtype.
    """
    for name, tensor in tensors.items():
        if not has_numpy_dtype(tensor.dtype):
            raise ValueError(f"{name}: npz cannot hold {tensor.dtype}; save it as pt")


def write(stream: IO[bytes], tensors: Mapping[str, torch.Tensor], written: Written) -> None:
    """Write whole storages and their header."""
    # np.savez is not used, because its argument "file" would hide a tensor of this name.
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in {**tensors, RESERVED_NAME: header(written)}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, tensor.cpu().numpy(), allow_pickle=False)


def read(path: Path, num_envs: int) -> Snapshot:  # noqa: ARG001 - the file says it
    """Reads such a file; pickled objects are refused.

    Raises:
        ValueError: the file is not a memory's npz file.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, ValueError, EOFError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: expected arrays that np.savez wrote, without objects") from error
    try:
        tensors = {name: as_tensor(name, array) for name, array in arrays.items()}
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from error
    return from_storages(tensors, path)
