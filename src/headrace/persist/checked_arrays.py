"""Arrays in one file with checksums: two lines of JSON as in `checked_json`, then the bytes of the arrays.

The reader trusts nothing in a file before its checksums are right.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.checked_json import checked_content, checked_json
from headrace.persist.whole_file import bytes_of, write_whole

T = TypeVar("T", bound=msgspec.Struct)


class _Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


class _Contents(msgspec.Struct, Generic[T], frozen=True, forbid_unknown_fields=True):
    content: T
    arrays: tuple[_Array, ...]
    xxh3_128: str


def write_checked_arrays(
    path: Path, content: msgspec.Struct, arrays: Mapping[str, NDArray[Any]], format_name: str, version: int
) -> None:
    """Writes such a file; see `write_whole`."""
    parts = [bytes_of(array) for array in arrays.values()]
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(part)
    records = tuple(_Array(name, array.dtype.str, array.shape) for name, array in arrays.items())
    head = checked_json(_Contents(content, records, digest.hexdigest()), format_name, version)
    write_whole(path, [head, b"\n", *parts])


def read_checked_arrays(
    path: Path, kind: type[T], format_name: str, version: int
) -> tuple[T, dict[str, NDArray[Any]]]:
    """Reads a file of `write_checked_arrays`; the arrays are read-only and lie in the file.

    Raises:
        CheckpointError: the file is missing, damaged, of another format, or of a version that is not known here.
    """
    try:
        file = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: expected a {format_name}, got {error}") from error
    with open(path, "rb") as lines:
        line, body = lines.readline(), lines.readline()
        begin = lines.tell()
    has_body = line.endswith(b"\n") and body.endswith(b"\n")
    contents: type[_Contents[T]] = _Contents[kind]  # type: ignore[valid-type]
    found = checked_content(
        path, line.rstrip(b"\n"), body[:-1] if has_body else None, contents, format_name, version
    )
    data = file[begin:]
    digest = xxhash.xxh3_128_hexdigest(bytes_of(data))
    if digest != found.xxh3_128:
        raise CheckpointError(
            f"{path}, byte {begin}: expected bytes with the checksum {found.xxh3_128}, got {digest}; the file is "
            "damaged"
        )
    arrays, place = {}, 0
    for record in found.arrays:
        dtype = np.dtype(record.dtype)
        end = place + dtype.itemsize * int(np.prod(record.shape, dtype=np.int64))
        arrays[record.name] = data[place:end].view(dtype).reshape(record.shape)
        place = end
    return found.content, arrays
