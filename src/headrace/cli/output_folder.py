"""Folders that a command writes to. The files of an earlier run are replaced only with --overwrite."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from headrace.system import lock, open_folder, unlock


@contextmanager
def folder_for(folder: Path, names: Sequence[str], overwrite: bool) -> Iterator[Path]:
    """Creates a folder and keeps other commands out of it. A folder that is empty at the end is removed.

    Args:
        folder: as the user gave it; it may exist.
        names: the files that will be written there.
        overwrite: whether these files may exist.

    Raises:
        click.ClickException: one of the files exists, and `overwrite` is False; another command is writing there; the
            folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be made ({error}); give another folder") from error
    with _locked(folder), _removed_if_empty(folder):
        existing = [name for name in names if os.path.lexists(folder / name)]
        if existing and not overwrite:
            raise click.ClickException(
                f"{folder} holds {', '.join(existing)} of an earlier run; --overwrite replaces them, "
                "another folder keeps them"
            )
        yield folder


@contextmanager
def new_folder(wanted: Path) -> Iterator[Path]:
    """Creates a folder under the wanted name, or under that name with a number where it exists already.

    >>> import tempfile
    >>> wanted = Path(tempfile.mkdtemp()) / "run"
    >>> with new_folder(wanted) as first, new_folder(wanted) as second:
    ...     first.name, second.name
    ('run', 'run-2')
    """
    for number in itertools.count(1):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        with _locked(folder), _removed_if_empty(folder):
            yield folder
        return


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other commands out of a folder: the second to end would replace the files of the first."""
    descriptor = open_folder(folder)
    if descriptor is None:
        yield
        return
    try:
        with suppress(OSError):  # Without locks, on some systems and file systems, nothing keeps others out.
            _lock(descriptor, folder)
        yield
    finally:
        with suppress(OSError):
            # Closing is not enough: a worker that has not ended yet has a copy of the descriptor.
            unlock(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    if not lock(descriptor):
        raise click.ClickException(
            f"{folder} is being written to by another command; wait for its end, or give another folder"
        )


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
