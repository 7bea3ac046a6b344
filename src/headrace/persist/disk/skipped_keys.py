"""The file of the keys that a store on disk skipped: ages of items are counted in keys that were used."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headrace.persist.checked_json import read_checked_json, write_checked_json
from headrace.tables.distribution import SkippedKeys

SKIPPED = "skipped.json"
_FORMAT, _VERSION = "headrace skipped keys", 1


class _SkippedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skipped: tuple[tuple[int, int], ...]


def write_skipped(folder: Path, skipped: SkippedKeys) -> None:
    """Writes the ranges of keys that no item was given."""
    write_checked_json(folder / SKIPPED, _SkippedRecord(skipped), _FORMAT, _VERSION)


def read_skipped(folder: Path) -> SkippedKeys:
    """Returns the ranges that were written last.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = folder / SKIPPED
    return read_checked_json(path, _SkippedRecord, _FORMAT, _VERSION).skipped if path.exists() else ()
