"""Atomic writing of a file or a folder: all or nothing."""

# Rules: datasets G6

from __future__ import annotations

import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.system import c_function, sync_file, sync_folder

_log = logging.getLogger(__name__)

_EXCHANGE, _RELATIVE_TO_CWD = 2, -100
# Python does not wrap this function; it is None on systems without it.
_renameat2 = c_function("renameat2")


@contextmanager
def writing(target: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a temporary path beside the target, for a file or a folder that is renamed to the target at the end.

    If the block raises (also Ctrl-C), the temporary is removed, with the parent folders that were made for it, and the
    target stays as it was. The block verifies the complete new file before it ends. The file is on the disk before it
    is renamed. A killed process leaves at most the temporary, under a hidden name beside the target, and never a
    half-written target. A folder is replaced by one exchange of names. Some file systems, such as NFS, cannot exchange
    names: there a killed process may leave the old folder under a hidden name only, which `whole_folder` finds.

    Args:
        target: path of the new file or folder; parent folders are made as needed.
        overwrite: whether an existing target is replaced.

    Raises:
        FileExistsError: the target exists and `overwrite` is False.
        IsADirectoryError, NotADirectoryError: a file would replace a folder, or a folder a file.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with writing(folder / "a.txt", overwrite=False) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    target = Path(os.path.abspath(target))
    _recover(target)
    if not overwrite:
        _refuse_existing(target)
    temporary = _temporary(target)
    made: list[Path] = []
    try:
        _make_parents(target.parent, made)
        yield temporary
        _flush_to_disk(temporary)
        if overwrite:
            _replace(temporary, target)
        else:
            _place(temporary, target)
        sync_folder(target.parent)
    except BaseException:
        _remove(temporary)
        for folder in reversed(made):
            with suppress(OSError):  # Another process has put a file there.
                folder.rmdir()
        raise


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} exists; overwrite=True replaces it")


def _make_parents(folder: Path, made: list[Path]) -> None:
    """Makes the folder and its parents, and appends each new one to `made`, outermost first."""
    missing = [folder]
    while not missing[-1].exists() and missing[-1] != missing[-1].parent:
        missing.append(missing[-1].parent)
    for each in reversed(missing[:-1]):
        with suppress(FileExistsError):  # Another export has just made it, so this one must not remove it.
            each.mkdir()
            made.append(each)


def _place(temporary: Path, target: Path) -> None:
    """Renames to a target that must not exist."""
    if temporary.is_dir():
        _refuse_existing(
            target
        )  # Of two exports at once the later one fails, because a rename replaces only an empty folder.
        os.rename(temporary, target)
        return
    try:
        os.link(temporary, target)  # Unlike a rename, a link refuses a name that was taken meanwhile.
    except FileExistsError:
        _refuse_existing(target)
        raise
    except OSError:  # The file system has no links.
        _refuse_existing(target)
        os.rename(temporary, target)
        return
    temporary.unlink()


def _replace(temporary: Path, target: Path) -> None:
    is_folder = target.is_dir() and not target.is_symlink()
    if os.path.lexists(target) and is_folder != temporary.is_dir():
        kind = IsADirectoryError if is_folder else NotADirectoryError
        old, new = ("folder", "file") if is_folder else ("file", "folder")
        raise kind(f"{target} is a {old}, and a {new} does not replace it")
    if not is_folder:
        os.replace(temporary, target)
        return
    if not _exchange(temporary, target):
        _step_aside(temporary, target)
    sync_folder(target.parent)
    _remove(temporary)


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two names in one step; returns False where the system or the file system cannot."""
    if _renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(_renameat2(_RELATIVE_TO_CWD, names[0], _RELATIVE_TO_CWD, names[1], _EXCHANGE) == 0)


def _step_aside(temporary: Path, target: Path) -> None:
    """Exchanges two names in three renames; after the first, the target's name is free."""
    aside = _aside(target)
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    with suppress(FileNotFoundError):  # Another export has removed it.
        os.rename(aside, temporary)


def _aside(target: Path) -> Path:
    # Unlike ".old", a user does not keep a copy under this name, which `_recover` would remove.
    return target.with_name(f".{target.name}.headrace-old")


def whole_folder(target: Path) -> Path:
    """Returns the path of a folder: its name, or a hidden name if a process was killed while it replaced the folder."""
    if os.path.lexists(target) or not _aside(target).is_dir():
        return target
    _log.warning(
        "%s is missing, because the process that replaced it was killed; its old content is in %s",
        target,
        _aside(target),
    )
    return _aside(target)


def _recover(target: Path) -> None:
    """Cleans up after a killed process: gives the old folder its name back, or removes it if that is taken."""
    if whole_folder(target) != target:
        os.rename(_aside(target), target)
    elif _aside(target).is_dir():
        doomed = _temporary(target)  # `whole_folder` must not find a half-removed folder.
        os.rename(_aside(target), doomed)
        _remove(doomed)


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush_to_disk(path: Path) -> None:
    if path.is_dir():
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                sync_file(Path(folder, name))
            sync_folder(Path(folder))
    else:
        sync_file(path)
