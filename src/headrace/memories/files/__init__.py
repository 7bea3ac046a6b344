"""Files of memories: one module a format, and here what they share."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO

import torch

from headrace.memories.files import csv_format, npz_format, pt_format
from headrace.memories.files.snapshot import Snapshot
from headrace.memories.order import Written

_Writer = Callable[[IO[bytes], Mapping[str, torch.Tensor], Written], None]
_WRITERS: dict[str, _Writer] = {"pt": pt_format.write, "npz": npz_format.write, "csv": csv_format.write}
_READERS: dict[str, Callable[[Path, int], Snapshot]] = {
    ".pt": pt_format.read,
    ".npz": npz_format.read,
    ".csv": csv_format.read,
}


def checked_format(name: str) -> str:
    """The format's name, which is also the suffix of its files; "np" is another spelling of "npz".

    Raises:
        ValueError: no such format.
    """
    name = "npz" if name == "np" else name
    if name not in _WRITERS:
        raise ValueError(f"format: expected one of {', '.join(_WRITERS)}, got {name!r}")
    return name


def save(folder: Path, format_name: str, tensors: Mapping[str, torch.Tensor], written: Written) -> Path:
    """Write a new file into `folder` and return its path; it appears whole or not at all.

    Raises:
        ValueError: no such format, or it cannot hold one of the dtypes.
    """
    suffix = checked_format(format_name)
    if suffix == "npz":
        npz_format.check_dtypes(tensors)
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now().strftime("%y-%m-%d_%H-%M-%S-%f")
    path = folder / f"{now}_memory_{secrets.token_hex(8)}.{suffix}"
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("xb") as stream:
            _WRITERS[suffix](stream, {name: tensors[name] for name in sorted(tensors)}, written)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def load(path: Path, num_envs: int) -> Snapshot:
    """Read a file; `num_envs` says how to read the rows of a format that does not say it (csv).

    Raises:
        FileNotFoundError: no such file.
        ValueError: another suffix, or not a file of a memory.
    """
    if path.suffix not in _READERS:
        raise ValueError(f"{path}: expected a file that ends in {', '.join(_READERS)}")
    return _READERS[path.suffix](path, num_envs)
