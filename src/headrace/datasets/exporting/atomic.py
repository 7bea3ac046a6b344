"""Writing a file or a folder all or nothing."""

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
# Python has no call for it; a system without it has no such function.
_renameat2 = c_function("renameat2")


@contextmanager
def writing(target: Path, overwrite: bool) -> Iterator[Path]:
    """Gives a name beside the target to make a file or a folder at; it takes the target's place when all went well.

    Where the block raises (Ctrl-C included), what it made is removed, with the parent folders that were made for it,
    and the target stays as it was. The writer checks the complete new file before the end of the block. It is on
    the disk before it is renamed. A process that is killed leaves at most the temporary, a hidden name beside the
    target, never a half-written target. A folder is replaced by one exchange of names. On a file system that has none,
    such as NFS, a killed process may leave the old folder under a hidden name only, which `whole_folder` finds.

    Args:
        target: where it shall be; parent folders are made as needed.
        overwrite: an existing target is replaced, at the end.

    Raises:
        FileExistsError: the target is there and `overwrite` is False.
        IsADirectoryError, NotADirectoryError: a file is to replace a folder, or a folder a file.

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
            with suppress(OSError):  # Somebody else has put something there.
                folder.rmdir()
        raise


def _refuse_existing(target: Path) -> None:
    if os.path.lexists(target):
        raise FileExistsError(f"{target} is there already; overwrite=True replaces it")


def _make_parents(folder: Path, made: list[Path]) -> None:
    """Make the folder, noting each one made in `made`, outermost first."""
    missing = [folder]
    while not missing[-1].exists() and missing[-1] != missing[-1].parent:
        missing.append(missing[-1].parent)
    for each in reversed(missing[:-1]):
        with suppress(FileExistsError):  # Another export has just made it: it is not ours to remove.
            each.mkdir()
            made.append(each)


def _place(temporary: Path, target: Path) -> None:
    """Rename to a name that must be free."""
    if temporary.is_dir():
        _refuse_existing(target)  # Of two exports at once the later fails: a rename replaces no full folder.
        os.rename(temporary, target)
        return
    try:
        os.link(temporary, target)  # Unlike a rename, it refuses a name that was taken meanwhile.
    except FileExistsError:
        _refuse_existing(target)
        raise
    except OSError:  # A file system without links.
        _refuse_existing(target)
        os.rename(temporary, target)
        return
    temporary.unlink()


def _replace(temporary: Path, target: Path) -> None:
    is_folder = target.is_dir() and not target.is_symlink()
    if os.path.lexists(target) and is_folder != temporary.is_dir():
        kind = IsADirectoryError if is_folder else NotADirectoryError
        raise kind(f"{target} is a {'folder' if is_folder else 'file'}, which this does not replace")
    if not is_folder:
        os.replace(temporary, target)
        return
    # A rename does not replace a folder that has files in it.
    if not _exchange(temporary, target):
        _step_aside(temporary, target)
    sync_folder(target.parent)
    _remove(temporary)


def _exchange(one: Path, other: Path) -> bool:
    """Lets two names change places in one step; returns False where the system or the file system cannot."""
    if _renameat2 is None:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(_renameat2(_RELATIVE_TO_CWD, names[0], _RELATIVE_TO_CWD, names[1], _EXCHANGE) == 0)


def _step_aside(temporary: Path, target: Path) -> None:
    """Does the same in three renames; after the first, nothing has the target's name."""
    aside = _aside(target)
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    with suppress(FileNotFoundError):  # Another export has cleared it away.
        os.rename(aside, temporary)


def _aside(target: Path) -> Path:
    # Not ".old": a copy that a user keeps under such a name must never be taken for ours, and removed.
    return target.with_name(f".{target.name}.headrace-old")


def whole_folder(target: Path) -> Path:
    """Returns where a folder is: under its name, or aside if a process was killed while it replaced the folder."""
    if os.path.lexists(target) or not _aside(target).is_dir():
        return target
    _log.warning(
        "%s is missing: the process that replaced it was killed; what it held before is in %s",
        target,
        _aside(target),
    )
    return _aside(target)


def _recover(target: Path) -> None:
    """Clears up after a killed process: the old folder gets its name back, or is removed if the new one has it."""
    if whole_folder(target) != target:
        os.rename(_aside(target), target)
    elif _aside(target).is_dir():
        doomed = _temporary(target)  # Half of it must not be found as the whole.
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
