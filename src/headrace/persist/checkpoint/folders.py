"""The folders of checkpoints in a directory: their names, making one in one step, removing the oldest.

A checkpoint is written into a hidden folder and renamed when it is complete. The hidden folder is locked while it is
written: the lock goes with its process, so the next save finds and removes the folders of killed processes.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.errors import CheckpointError
from headrace.persist.checkpoint.manifest import MANIFEST, is_manifest
from headrace.system import has_locks, lock, open_folder, sync_folder

_NAME = re.compile(r"checkpoint-(\d{12})")
_UNFINISHED = re.compile(r"\.checkpoint-[0-9a-f]{16}\.(partial|removed)")


def is_checkpoint(path: Path) -> bool:
    """Returns whether the folder itself is a checkpoint, complete or not."""
    return (path / MANIFEST).exists() or _NAME.fullmatch(path.name) is not None


def candidates(directory: Path) -> list[Path]:
    """Returns the folders in a directory with the names of checkpoints, newest first."""
    return sorted((path for path in _entries(directory) if _NAME.fullmatch(path.name)), reverse=True)


@contextmanager
def new_folder(directory: Path) -> Iterator[Path]:
    """Gives a hidden folder for a new checkpoint, removed at the end unless `publish` has renamed it."""
    _remove_abandoned(directory)
    folder, descriptor = _locked_folder(directory)
    try:
        yield folder
    finally:
        if descriptor is not None:
            os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, directory: Path) -> Path:
    """Renames a complete checkpoint: its number is one above the highest in the directory."""
    # Rules: replay Q4
    sync_folder(folder)
    number = max((_number(path) for path in _made_here(directory)), default=0)
    while True:
        number += 1
        path = directory / f"checkpoint-{number:012}"
        if os.path.lexists(path):
            continue  # A foreign folder, or a checkpoint without its manifest.
        try:
            folder.rename(path)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            continue  # Another save was quicker; a folder that is not empty is not replaced.
        sync_folder(directory)
        return path


def remove_older(directory: Path, keep: int) -> None:
    """Removes the checkpoints of `publish` except the newest `keep`."""
    # Rules: replay Q5
    for path in sorted(_made_here(directory))[:-keep]:
        doomed = directory / f".checkpoint-{secrets.token_hex(8)}.removed"
        with suppress(FileNotFoundError):  # Another save was quicker.
            path.rename(doomed)
            shutil.rmtree(doomed)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError as error:
        raise CheckpointError(
            f"{directory}: expected a checkpoint or a directory of them, got {error.strerror or error}"
        ) from error


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _made_here(directory: Path) -> list[Path]:
    """Returns the folders that have the name and the manifest of a checkpoint."""
    return [
        path
        for path in candidates(directory)
        if path.is_dir() and not path.is_symlink() and is_manifest(path / MANIFEST)
    ]


def _locked_folder(directory: Path) -> tuple[Path, int | None]:
    while True:
        folder = directory / f".checkpoint-{secrets.token_hex(8)}.partial"
        folder.mkdir()
        if not has_locks():
            return folder, None
        descriptor = _lock(folder)
        # Another save may have taken it for abandoned before it was locked.
        if descriptor is not None and folder.exists():
            return folder, descriptor
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Returns a descriptor with the folder's lock; None if another process has it or the folder is gone."""
    try:
        descriptor = open_folder(folder)
    except FileNotFoundError:
        return None
    if descriptor is None or lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _remove_abandoned(directory: Path) -> None:
    """Removes folders of killed processes. Without locks they may be those of another save, so they stay."""
    if not has_locks():
        return
    for path in _entries(directory):
        if not _UNFINISHED.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        descriptor = _lock(path)
        if descriptor is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(descriptor)
