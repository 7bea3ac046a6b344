"""Writing a file or a folder all or nothing."""

# Rules: datasets G6

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def writing(target: Path, overwrite: bool) -> Iterator[Path]:
    """Gives a name beside the target to make a file or a folder at; it takes the target's place when all went well.

    Where the block raises (Ctrl-C included), what it made is removed, with the parent folders that were made for it,
    and the target stays as it was. The writer checks the complete new file before the end of the block. It is on
    the disk before it is renamed. A process that is killed leaves at most the temporary, a hidden name beside the
    target, never a half-written target.

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
    if not overwrite:
        _refuse_existing(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    made: list[Path] = []
    try:
        _make_parents(target.parent, made)
        yield temporary
        _flush_to_disk(temporary)
        if overwrite:
            _replace(temporary, target)
        else:
            _place(temporary, target)
        _flush_folder(target.parent)
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
    # A rename does not replace a folder that has files in it: the old one steps aside first.
    aside = temporary.with_suffix(".old")
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _flush_to_disk(path: Path) -> None:
    if path.is_dir():
        for folder, _, names in os.walk(path, topdown=False):
            for name in names:
                _flush(Path(folder, name), os.O_RDONLY)
            _flush_folder(Path(folder))
    else:
        _flush(path, os.O_RDONLY)


def _flush_folder(folder: Path) -> None:
    _flush(folder, os.O_RDONLY | os.O_DIRECTORY)


def _flush(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
