"""Folders that a command writes to: what an earlier run left there is replaced only when that is asked for."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from headrace.system import lock, open_folder, unlock


class Interrupted(click.ClickException):
    """Ctrl-C, after everything was written; exit code 1, and no "Error:" before the text."""

    def show(self, file: object = None) -> None:  # noqa: ARG002 - click calls it so
        """Prints the text on standard error."""
        click.echo(self.message, err=True)


@contextmanager
def finishing(notice: str) -> Iterator[None]:
    """Lets the block go on after Ctrl-C, which is answered with a notice; a second Ctrl-C ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(*_: object) -> None:
        signal.signal(signal.SIGINT, before)
        click.echo(f"{notice}; Ctrl-C again gives it up", err=True)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def folder_for(folder: Path, names: Sequence[str], overwrite: bool) -> Iterator[Path]:
    """Gives the folder, made if it is not there; one that is empty at the end is removed.

    Args:
        folder: as the user gave it.
        names: of the files that will be written there.
        overwrite: whether these may be there already.

    Raises:
        click.ClickException: one of them is, and `overwrite` is False; another command is writing there; the folder
            cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{folder}: cannot be made ({error}); give another --out") from error
    with _locked(folder), _removed_if_empty(folder):
        there = [name for name in names if os.path.lexists(folder / name)]
        if there and not overwrite:
            raise click.ClickException(
                f"{folder} holds {', '.join(there)} of an earlier run; --overwrite replaces, another --out keeps"
            )
        yield folder


@contextmanager
def new_folder(wanted: Path) -> Iterator[Path]:
    """Gives a folder that was not there before: the one wanted, or that name with a number behind it.

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
        with _removed_if_empty(folder):
            yield folder
        return


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps other commands out of a folder: of two at once, the later end would replace the files of the earlier."""
    descriptor = open_folder(folder)
    if descriptor is None:
        yield
        return
    try:
        with suppress(OSError):  # A file system or a system without locks: then nothing keeps others out.
            _lock(descriptor, folder)
        yield
    finally:
        with suppress(OSError):
            # By hand: a worker that has not ended yet has a copy of the descriptor.
            unlock(descriptor)
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    if not lock(descriptor):
        raise click.ClickException(
            f"{folder} is being written to by another command; wait for its end, or give another --out"
        )


@contextmanager
def _removed_if_empty(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        with suppress(OSError):
            folder.rmdir()
