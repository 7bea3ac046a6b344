"""The files of one table's items in a store on disk, one generation after another."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from headrace.errors import CheckpointError
from headrace.persist.disk.header import DiskHeader
from headrace.persist.recovery import FoundItems, check_items
from headrace.store.memory.arena import Arena
from headrace.store.memory.out_of_space import out_of_space
from headrace.tables.item_memory import ItemMemory, found_items
from headrace.tables.items import journal
from headrace.tables.items.layout import DELETES, INSERTS, SAMPLES


class Generations:
    """The generations of one table's items. Which of them counts stands in the header.

    Args:
        folder: of the store.
        header: of the store.
        number: of the table.
        open_arena: how a file that is there is mapped.
    """

    def __init__(
        self,
        folder: Path,
        header: DiskHeader,
        number: int,
        open_arena: Callable[[Path, int], Arena] = Arena.file,
    ) -> None:
        self._folder = folder
        self._open_arena = open_arena
        self._header = header
        self._number = number

    @property
    def generation(self) -> int:
        """The one that counts."""
        return self._header.generation_of(self._number)

    @property
    def path(self) -> Path:
        """Of the generation that counts."""
        return self._path(self.generation)

    def _path(self, generation: int) -> Path:
        return self._folder / f"items-{self._number}-{generation}"

    def new(self, nbytes: int) -> Arena:
        """Makes the file of the next generation; memory in a forked child, whose copy of the store has no files."""
        if self._header.is_inherited:
            return Arena.private(nbytes)
        path = self._path(self.generation + 1)
        arena = None
        try:
            path.unlink(missing_ok=True)
            arena = Arena.file(path, nbytes)
            arena.reserve(0, nbytes)
        except OSError as error:
            if arena is not None:
                arena.close()
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise out_of_space(f"{nbytes} bytes for items in {path}", error) from error
        return arena

    def turn(self) -> None:
        """Makes the next generation, which is complete, count; removes the older file."""
        old = self.path
        self._header.turn_generation(self._number, self.generation + 1)
        if not self._header.is_inherited:
            old.unlink(missing_ok=True)

    def opened(self) -> ItemMemory:
        """Maps the items in the file, perhaps with an incomplete change.

        Raises:
            CheckpointError: with the place.
        """
        if self.generation < 1 or not self.path.is_file() or not self.path.stat().st_size:
            raise CheckpointError(f"{self.path}: expected the items of a table; the file is missing or empty")
        arena = self._open_arena(self.path, self.path.stat().st_size)
        memory = found_items(arena)
        if memory is None:
            raise CheckpointError(f"{self.path}, byte 0: expected the items of a table; the file is damaged")
        if not journal.is_sound(memory.arrays):
            offset = memory.layout.places["journal"][0]
            raise CheckpointError(f"{self.path}, byte {offset}: expected a journal; the file is damaged")
        return memory

    def found(self, next_key: int) -> ItemMemory:
        """Maps the items in the file, as they were before or after the last change.

        Raises:
            CheckpointError: with the place.
        """
        memory = self.opened()
        journal.undo(memory.arrays)
        check_items(self.described(memory, next_key))
        return memory

    def described(self, memory: ItemMemory, next_key: int) -> FoundItems:
        """Describes items for `recover`."""
        ring = memory.arrays.ring
        counts = (int(ring[INSERTS]), int(ring[SAMPLES]), int(ring[DELETES]))

        def where(name: str, place: int) -> str:
            array, whole = getattr(memory.arrays, name), memory.arena.array(0, (1,), np.uint8)
            begin = array.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
            return f"{self.path}, byte {begin + place * array.strides[0]} ({name})"

        return FoundItems(memory.arrays, counts, 0, next_key, where)
