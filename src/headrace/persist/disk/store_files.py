"""Opened files of a store on disk: its rows, header and items, and the checks of their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.errors import CheckpointError
from headrace.persist.disk.boot import boot_id
from headrace.persist.disk.checksums import Checksums, checksums_of, pages_in_use
from headrace.persist.disk.closed_store import HASHES, read_closed
from headrace.persist.disk.generations import Generations
from headrace.persist.disk.header import DiskHeader
from headrace.persist.recovery import FoundItems, check_items, pin_tables
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.item_memory import ItemMemory

HEADER = "header"


class StoreFiles:
    """The files of a store beside its rows.

    Args:
        folder: of the store.
        store: its rows, mapped.
        tables: names of its tables.
        is_new: whether the store is being made.
        open_arena: maps a file.

    Raises:
        CheckpointError: a file is missing or damaged.

    Attributes:
        header: counters that never go back.
        items: the files of each table, by its name.
        closed: the record of an orderly close; None without one.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        tables: tuple[str, ...],
        *,
        is_new: bool,
        open_arena: Callable[[Path, int], Arena] = Arena.file,
    ) -> None:
        self.folder = folder
        self.store = store
        self.closed = read_closed(folder)
        columns = tuple(store.signature.columns)
        self.header = DiskHeader(folder / HEADER, columns, len(tables), is_new=is_new, open_arena=open_arena)
        self.items = {
            name: Generations(folder, self.header, number, open_arena) for number, name in enumerate(tables)
        }

    # ---- state -----------------------------------------------------------------------------------------------------

    def note_boot(self) -> None:
        """Notes that the store is in use since the present boot."""
        self.header.boot = boot_id()

    def may_have_lost(self, *, has_point: bool) -> bool:
        """Returns whether the machine may have failed while the store was open.

        Args:
            has_point: whether there is a durable point. Without one, the record of an orderly close suffices.
        """
        if self.header.boot == boot_id() != 0:
            return False
        return self.closed is None or (has_point and not self.is_as_closed())

    def is_as_closed(self) -> bool:
        """Returns whether the files are as the last orderly close left them."""
        closed = self.closed
        return closed is not None and self.header.opened == 0 and closed.checksums == self._checksums()

    def refuse_damage(self) -> None:
        """Compares the files with the checksums of the last orderly close, if they still count. Nothing is written.

        Raises:
            CheckpointError: with the file, and the byte if it is known.
        """
        closed = self.closed
        if closed is None or self.header.opened == closed.token or self.is_as_closed():
            return
        # An error in the structure says more than a checksum.
        found = self.described({name: each.opened() for name, each in self.items.items()})
        for each in found:
            check_items(each)
        pin_tables(self.store, pages_in_use(self.store), found)
        now, then = self._checksums(), closed.checksums
        differ = {
            self.folder / HEADER: now.header != then.header or self.header.opened,
            self.folder / "index": now.pages != then.pages,
            self.folder / HASHES: now.page_hashes != then.page_hashes,
            **{each.path: now.tables[name] != then.tables.get(name) for name, each in self.items.items()},
        }
        names = ", ".join(str(path) for path, is_other in differ.items() if is_other)
        raise CheckpointError(
            f"{names}: expected the checksum that the store was closed with, got another; the file is damaged. Load a "
            "checkpoint that is whole"
        )

    def _checksums(self) -> Checksums:
        return checksums_of(
            self.store, self.header, {name: _opened(each) for name, each in self.items.items()}
        )

    # ---- items -----------------------------------------------------------------------------------------------------

    def found(self, name: str) -> ItemMemory:
        """Returns the items of a table, as they were before or after the last change.

        Raises:
            CheckpointError: with the place.
        """
        return self.items[name].found(self.header.next_key)

    def described(self, memories: Mapping[str, ItemMemory]) -> list[FoundItems]:
        """Describes the items of these tables for `recover`."""
        return [self.items[name].described(memory, self.header.next_key) for name, memory in memories.items()]


def _opened(files: Generations) -> ItemMemory | None:
    try:
        return files.opened()
    except CheckpointError:
        return None
