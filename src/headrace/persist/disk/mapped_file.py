"""A mapped file of a store whose space on the disk is taken at once: writing to it never ends the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headrace.store.memory.arena import Arena
from headrace.store.memory.out_of_space import out_of_space


def mapped_file(path: Path, nbytes: int, open_arena: Callable[[Path, int], Arena] = Arena.file) -> Arena:
    """Maps a file, made where there is none, and takes its space on the disk.

    Args:
        path: of the file.
        nbytes: its size.
        open_arena: how it is mapped.

    Raises:
        StoreFull: the disk is full.
    """
    try:
        arena = open_arena(path, nbytes)
        try:
            arena.reserve(0, nbytes)
        except BaseException:
            arena.close()
            raise
    except OSError as error:
        raise out_of_space(f"{nbytes} bytes for {path}", error) from error
    return arena
