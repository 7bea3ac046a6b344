"""`pt`: a dict of tensors, as `torch.save` writes it."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import torch

from headrace.memories.files.snapshot import Snapshot, from_storages, header
from headrace.memories.order import Written
from headrace.memories.storage import RESERVED_NAME


def write(stream: IO[bytes], tensors: Mapping[str, torch.Tensor], written: Written) -> None:
    """Write whole storages and their header."""
    data = {name: tensor.cpu() for name, tensor in tensors.items()}
    torch.save(data | {RESERVED_NAME: header(written)}, stream)


def read(path: Path, num_envs: int) -> Snapshot:  # noqa: ARG001 - the file says it
    """Read such a file; no pickled object but tensors is taken.

    Raises:
        ValueError: it is something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # about a pickle of another version; it is refused below
            data = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path}: expected a dict of tensors that torch.save wrote") from error
    if not isinstance(data, dict) or not all(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in data.items()
    ):
        raise ValueError(f"{path}: expected a dict of tensors by name, got {type(data).__name__}")
    return from_storages(dict(data), path)
