"""Files of an orderly close: its record, and the checksums that the next opening compares."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from headrace.errors import CheckpointError
from headrace.persist.checked_json import read_checked_json, write_checked_json
from headrace.persist.disk.checksums import Checksums, checksums_of, hash_of_page, pages_in_use
from headrace.persist.disk.generations import Generations
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.mapped_file import mapped_file
from headrace.persist.generator import GeneratorRecord, generator_state
from headrace.persist.recovery import check_items, pin_tables
from headrace.store.layout import LANES
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.item_memory import ItemMemory

CLOSED, HASHES = "closed.json", "hashes"
_FORMAT, _VERSION = "headrace closed store", 2


class ClosedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """State needed to continue exactly after reopening.

    Attributes:
        generator: the replay's random generator.
        next_key: the next key.
        token: stands in the header once the store is opened again: then the checksums are out of date.
        checksums: of the files.
    """

    generator: GeneratorRecord
    next_key: int
    token: int
    checksums: Checksums


def read_closed(folder: Path) -> ClosedRecord | None:
    """The record of an orderly close; None without one.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / CLOSED
    if not path.exists():
        return None
    record = read_checked_json(path, ClosedRecord, _FORMAT, _VERSION)
    try:
        generator_state(record.generator)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return record


def write_closed(
    folder: Path,
    store: Store,
    header: DiskHeader,
    tables: Mapping[str, ItemMemory],
    generator: GeneratorRecord,
) -> None:
    """Hash what is in the files and write the record down."""
    hash_new_pages(store)
    header.opened = 0
    checksums = checksums_of(store, header, tables)
    record = ClosedRecord(generator, header.next_key, 1 + secrets.randbits(62), checksums)
    write_checked_json(folder / CLOSED, record, _FORMAT, _VERSION)


def open_hashes(folder: Path, store: Store) -> Arena:
    """The file of the hashes of pages, which become those of the store.

    Raises:
        StoreFull: no room on the disk.
    """
    arena = mapped_file(folder / HASHES, 8 * store.num_pages)
    store.page_hashes = arena.array(0, (store.num_pages,), np.uint64)  # type: ignore[assignment]
    return arena


def hash_new_pages(store: Store) -> None:
    """Hash the pages that were taken since they were hashed last. Free ones are left out."""
    hashes = store.page_hashes
    assert hashes is not None
    in_use = pages_in_use(store)
    is_new = (store.arrays.pages[:in_use, LANES] > 0) & (hashes[:in_use] == 0)
    for page in np.flatnonzero(is_new).tolist():
        hashes[page] = hash_of_page(store, page)


def forget_hashes(store: Store) -> None:
    """No page counts as hashed any more."""
    hashes = store.page_hashes
    assert hashes is not None
    hashes[np.flatnonzero(hashes)] = 0


def is_as_closed(
    record: ClosedRecord, store: Store, header: DiskHeader, files: Mapping[str, Generations]
) -> bool:
    """Whether the files are what they were when the store was closed."""
    return header.opened == 0 and record.checksums == _checksums_now(store, header, files)


def refuse_damage(
    folder: Path, record: ClosedRecord, store: Store, header: DiskHeader, files: Mapping[str, Generations]
) -> None:
    """Raise if the files are not what they were when the store was closed. Nothing is written.

    Raises:
        CheckpointError: with the file, and the place in it where that is known.
    """
    if header.opened == record.token or is_as_closed(record, store, header, files):
        return
    # An error in the structure says more than a checksum.
    found = [each.described(each.opened(), header.next_key) for each in files.values()]
    for each in found:
        check_items(each)
    pin_tables(store, pages_in_use(store), found)
    now, then = _checksums_now(store, header, files), record.checksums
    differ = {
        folder / "header": now.header != then.header or header.opened,
        folder / "index": now.pages != then.pages,
        folder / HASHES: now.page_hashes != then.page_hashes,
        **{each.path: now.tables[name] != then.tables.get(name) for name, each in files.items()},
    }
    names = ", ".join(str(path) for path, is_other in differ.items() if is_other)
    raise CheckpointError(
        f"{names}: expected the checksum that the store was closed with, got another; the file is damaged. Load a "
        "checkpoint that is whole"
    )


def _checksums_now(store: Store, header: DiskHeader, files: Mapping[str, Generations]) -> Checksums:
    return checksums_of(store, header, {name: _opened(each) for name, each in files.items()})


def _opened(files: Generations) -> ItemMemory | None:
    try:
        return files.opened()
    except CheckpointError:
        return None
