"""Contents of a checkpoint's manifest: its files, and all data that are not arrays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from headrace.persist.checked_json import checked_json, has_head, read_checked_json
from headrace.persist.generator import GeneratorRecord
from headrace.persist.items_record import ItemsRecord
from headrace.tables.description.table_json import TableJson

MANIFEST = "manifest.json"
# Version 2 hashes files by pieces, and keeps key, row and times of an item side by side.
FORMAT, VERSION = "headrace checkpoint", 2


class ArrayRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array in a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class FileRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file: arrays one after another. The checksum is that of `files.PIECE`-sized pieces' checksums."""

    name: str
    size: int
    xxh3_128: str
    arrays: tuple[ArrayRecord, ...]


# For versions of Headrace that went by it; this one needs none.
SCRATCH = 256


class TableEntry(ItemsRecord, frozen=True, forbid_unknown_fields=True):
    """One table; the arrays of its items are in `file`."""

    table: TableJson
    counts: dict[str, int]
    scratch: int
    file: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole checkpoint."""

    signature: dict[str, Any]
    capacity: int | None
    page_rows: int
    next_key: int
    next_episode: int
    given: tuple[str, ...]
    paddings: dict[str, dict[str, Any]]
    generator: GeneratorRecord
    tables: tuple[TableEntry, ...]
    files: tuple[FileRecord, ...]
    skipped_keys: tuple[tuple[int, int], ...] = ()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes the manifest last, which completes the checkpoint. Its name is on the disk when the folder is synced."""
    with open(folder / MANIFEST, "xb") as file:
        file.write(checked_json(manifest, FORMAT, VERSION))
        file.flush()
        os.fsync(file.fileno())


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest.

    Raises:
        CheckpointError: it is missing, damaged, or of a version that is not known here.
    """
    return read_checked_json(folder / MANIFEST, Manifest, FORMAT, VERSION)


def is_manifest(path: Path) -> bool:
    """Returns whether a file begins as the manifest of a checkpoint does; see `has_head`."""
    return has_head(path, FORMAT)
