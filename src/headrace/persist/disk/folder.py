"""Folder of a store on disk: the names of its files, and the lock of its owner.

manifest.json     what is stored: signature, sizes, names of tables. Written last: without it there is no store
rows              the values of rows, mapped. It is locked by its owner, and by the workers that write in it
index             the page table and the other arrays about rows, mapped by the owner alone. Both files are
sparse; an orderly close cuts them (`rows_file.py`)
header            counters that never go back, and which generation of items counts; mapped
items-T-G         the items of table T, generation G; mapped
hashes            the hash of each page of rows that was not taken since; mapped
closed.json       after an orderly close: the random generator, exact counters, checksums
durable           the last durable point, once there is one; `released` beside it (`durable_point.py`)
paddings.json     the values of padded rows
skipped.json      keys that no item was given, if a shard of a replay skipped some when it was started again
writers           the numbers of items of clients' writers, once there was one; mapped
"""

from __future__ import annotations

import os
from pathlib import Path

from headrace.errors import CheckpointError
from headrace.persist.disk.closed_store import CLOSED, HASHES
from headrace.persist.disk.durable_point import DURABLE, RELEASED
from headrace.persist.disk.manifest import MANIFEST
from headrace.persist.disk.rows_file import INDEX, ROWS
from headrace.persist.disk.skipped_keys import SKIPPED
from headrace.persist.disk.store_files import HEADER
from headrace.persist.disk.writer_counts import WRITERS
from headrace.system import lock, need_linux

PADDINGS = "paddings.json"
# Files that are written beside those they replace.
_REPLACED = (MANIFEST, PADDINGS, SKIPPED, CLOSED, DURABLE)
_OWN_FILES = (
    ROWS,
    INDEX,
    HEADER,
    HASHES,
    RELEASED,
    WRITERS,
    *(f"{name}.partial" for name in _REPLACED),
    *_REPLACED[1:],
)


def need_disk(what: str) -> None:
    """Refuses a store on disk on a system that cannot map and lock its files.

    Raises:
        Unsupported: on another system than Linux.
    """
    need_linux(
        what,
        "files that are mapped and locked",
        "Keep the replay in memory, and save checkpoints: replay.save(directory), hr.Replay.load(directory)",
    )


def lock_to_write(folder: Path) -> int:
    """Returns a descriptor of the rows' file, made for a new store, that holds the lock of the owner.

    Raises:
        CheckpointError: the folder has foreign files, or another process has the lock.
    """
    flags = os.O_RDWR
    if not (folder / MANIFEST).exists():
        foreign = [path.name for path in folder.iterdir() if not _is_own(path.name)]
        if foreign:
            raise CheckpointError(
                f"{folder}: expected a store, or an empty folder for a new one, got "
                f"{', '.join(sorted(foreign)[:5])}"
            )
        flags |= os.O_CREAT
    return _locked(
        folder,
        flags,
        is_shared=False,
        in_use="in use by another process, by the worker of a collector, or was opened twice in this one; close it "
        "there first, and shut its collectors down",
    )


def lock_to_read(folder: Path) -> int:
    """Returns a descriptor of the rows' file whose lock excludes an owner, and admits other readers.

    Raises:
        CheckpointError: the store has an owner, or there is none.
    """
    return _locked(
        folder,
        os.O_RDONLY,
        is_shared=True,
        in_use="in use by another process, or by this one; close it there first",
    )


def _locked(folder: Path, flags: int, *, is_shared: bool, in_use: str) -> int:
    rows = folder / ROWS
    try:
        descriptor = os.open(rows, flags, 0o600)
    except OSError as error:
        raise CheckpointError(f"{rows}: expected the rows of a store, got {error.strerror}") from error
    if not lock(descriptor, shared=is_shared):
        os.close(descriptor)
        raise CheckpointError(f"{folder}: the store is {in_use}")
    return descriptor


def remove_own_files(folder: Path, keep: set[str]) -> None:
    """Removes the files of a store, which a killed process may have left, except these."""
    for path in folder.iterdir():
        if _is_own(path.name) and path.name not in keep:
            path.unlink()


def _is_own(name: str) -> bool:
    return name in _OWN_FILES or name.startswith("items-")
