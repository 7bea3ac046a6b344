"""`csv`: what is stored, one line a sample, as text that reads back exactly.

The header names each element `<name>.<i>`, or `<name>.<i>.<j>` where samples have more dimensions. Line
`k * num_envs + e` after it is the k-th oldest sample of environment e. Numbers are written as Python does.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from itertools import groupby, islice, product
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from headrace.memories.files.snapshot import Snapshot
from headrace.memories.order import Written, chronological

_LINES_AT_ONCE = 4096  # a bound on the Python objects that exist at one time
_BOOLS = {"True": True, "False": False}


def write(stream: IO[bytes], tensors: Mapping[str, torch.Tensor], written: Written) -> None:
    """Write what is stored, oldest first."""
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    lines = csv.writer(text)
    lines.writerow(
        [column for name, tensor in tensors.items() for column in _columns(name, tuple(tensor.shape[2:]))]
    )
    order = chronological(written, written.memory_size)
    for start in range(0, len(order), _LINES_AT_ONCE):
        rows = order[start : start + _LINES_AT_ONCE]
        parts = [
            tensor.flatten(0, 1)[rows.to(tensor.device)].reshape(len(rows), -1).tolist()
            for tensor in tensors.values()
        ]
        lines.writerows([cell for part in line for cell in part] for line in zip(*parts, strict=True))
    text.flush()
    text.detach()  # the stream belongs to the caller


def read(path: Path, num_envs: int) -> Snapshot:
    """Read such a file for a memory of `num_envs` environments.

    Raises:
        ValueError: it is something else.
    """
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = csv.reader(stream)
            sizes = _parse_header(next(lines, []), path)
            width = sum(prod(size) for size in sizes.values())
            blocks = [
                _parse_block(block, list(sizes.values()), path) for block in _blocks(lines, width, path)
            ]
    except csv.Error as error:
        raise ValueError(f"{path}: expected comma-separated values: {error}") from error
    return _snapshot(sizes, blocks, num_envs, path)


def _snapshot(
    sizes: dict[str, tuple[int, ...]], blocks: list[list[np.ndarray[Any, Any]]], num_envs: int, path: Path
) -> Snapshot:
    count = sum(len(block[0]) for block in blocks)
    memory_size = max(1, -(-count // num_envs))
    filled = count == memory_size * num_envs
    columns = zip(*blocks, strict=True) if blocks else [()] * len(sizes)
    rows = {
        name: _joined(name, column, size, path)
        for (name, size), column in zip(sizes.items(), columns, strict=True)
    }
    written = Written(memory_size, num_envs, 0 if filled else count, filled)
    return Snapshot(rows, written, {name: _dtype_if_new(column) for name, column in rows.items()})


def _columns(name: str, size: tuple[int, ...]) -> list[str]:
    return [".".join([name, *map(str, index)]) for index in product(*map(range, size))]


def _parse_header(header: list[str], path: Path) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {}
    for name, group in groupby(header, key=lambda column: column.split(".")[0]):
        columns = list(group)
        indexes = columns[-1].split(".")[1:]
        size = tuple(int(index) + 1 for index in indexes if index.isdecimal())
        if not name.isidentifier() or name in sizes or columns != _columns(name, size):
            raise ValueError(f"{path}: expected columns <name>.0, <name>.1, ..., got {columns}")
        sizes[name] = size
    return sizes


def _blocks(lines: Iterator[list[str]], width: int, path: Path) -> Iterator[list[list[str]]]:
    while block := list(islice(lines, _LINES_AT_ONCE)):
        for line in block:
            if len(line) != width:
                raise ValueError(f"{path}: expected {width} cells a line, got {len(line)}: {line}")
        yield block


def _parse_block(
    block: list[list[str]], sizes: list[tuple[int, ...]], path: Path
) -> list[np.ndarray[Any, Any]]:
    arrays, start = [], 0
    for size in sizes:
        stop = start + prod(size)
        cells = [cell for line in block for cell in line[start:stop]]
        arrays.append(_parse_cells(cells, path).reshape(len(block), *size))
        start = stop
    return arrays


def _parse_cells(cells: list[str], path: Path) -> np.ndarray[Any, Any]:
    if all(cell in _BOOLS for cell in cells):
        return np.array([_BOOLS[cell] for cell in cells])
    for parse, dtype in ((int, np.int64), (float, np.float64), (complex, np.complex128)):
        try:
            return np.array([parse(cell) for cell in cells], dtype=dtype)
        except ValueError:
            continue
        except OverflowError as error:
            raise ValueError(f"{path}: expected integers of 64 bits") from error
    raise ValueError(f"{path}: expected numbers, or True and False, got {cells}")


def _joined(
    name: str, blocks: tuple[np.ndarray[Any, Any], ...], size: tuple[int, ...], path: Path
) -> torch.Tensor:
    if not blocks:
        return torch.empty((0, *size), dtype=torch.bool)  # no rows, of the dtype that fits into every other
    if len({block.dtype.kind == "b" for block in blocks}) > 1:
        raise ValueError(f"{path}: {name} has both numbers and True or False")
    return torch.from_numpy(np.concatenate(blocks))


def _dtype_if_new(rows: torch.Tensor) -> torch.dtype:
    default = torch.get_default_dtype()
    if rows.is_complex():
        return default.to_complex()
    return default if rows.is_floating_point() or len(rows) == 0 else rows.dtype
