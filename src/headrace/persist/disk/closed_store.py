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
from headrace.persist.disk.header import DiskHeader
from headrace.persist.disk.mapped_file import mapped_file
from headrace.persist.generator import GeneratorRecord, generator_state
from headrace.store.layout import LANES
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.item_memory import ItemMemory

CLOSED, HASHES = "closed.json", "hashes"
FORMAT, VERSION = "headrace closed store", 2


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
    """Reads the record of an orderly close; returns None without one.

    Raises:
        CheckpointError: it is damaged.
    """
    path = folder / CLOSED
    if not path.exists():
        return None
    record = read_checked_json(path, ClosedRecord, FORMAT, VERSION)
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
    """Hashes the files and writes the record."""
    hash_new_pages(store)
    header.opened = 0
    checksums = checksums_of(store, header, tables)
    record = ClosedRecord(generator, header.next_key, 1 + secrets.randbits(62), checksums)
    write_checked_json(folder / CLOSED, record, FORMAT, VERSION)


def open_hashes(folder: Path, store: Store) -> Arena:
    """Maps the file of the hashes of pages, and gives them to the store.

    Raises:
        StoreFull: the disk is full.
    """
    arena = mapped_file(folder / HASHES, 8 * store.num_pages)
    store.page_hashes = arena.array(0, (store.num_pages,), np.uint64)  # type: ignore[assignment]
    return arena


def hash_new_pages(store: Store) -> None:
    """Hashes the pages that were taken since they were hashed last, except free ones."""
    hashes = store.page_hashes
    assert hashes is not None
    in_use = pages_in_use(store)
    is_new = (store.arrays.pages[:in_use, LANES] > 0) & (hashes[:in_use] == 0)
    for page in np.flatnonzero(is_new).tolist():
        hashes[page] = hash_of_page(store, page)


def forget_hashes(store: Store) -> None:
    """Clears all hashes of pages."""
    hashes = store.page_hashes
    assert hashes is not None
    hashes[np.flatnonzero(hashes)] = 0
