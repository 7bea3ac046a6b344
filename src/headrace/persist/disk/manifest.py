"""Manifest of a store on disk: its contents, and their layout in the files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from headrace.errors import CheckpointError
from headrace.persist.checked_json import has_head, read_checked_json, write_checked_json
from headrace.persist.disk.rows_file import check_sizes
from headrace.spec import Signature
from headrace.store.layout import plan_index, plan_rows
from headrace.store.memory.arena import Arena
from headrace.store.store import Store

MANIFEST = "manifest.json"
# Version 2 keeps the index of the rows in a file of its own.
FORMAT, VERSION = "headrace store", 2


class StoreManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a store, and their layout in the files."""

    signature: dict[str, object]
    capacity: int | None
    page_rows: int
    num_pages: int
    arrays: tuple[tuple[str, int], ...]
    tables: tuple[str, ...]


def is_store(folder: Path) -> bool:
    """Returns whether a folder holds a store, damaged or not."""
    return has_head(folder / MANIFEST, FORMAT)


def read_store_manifest(folder: Path) -> StoreManifest:
    """Reads the manifest of the store in a folder.

    Raises:
        CheckpointError: it is missing or damaged.
    """
    return read_checked_json(folder / MANIFEST, StoreManifest, FORMAT, VERSION)


def write_store_manifest(folder: Path, store: Store, tables: tuple[str, ...]) -> None:
    """Writes the manifest, after which the folder holds a store."""
    manifest = StoreManifest(
        store.signature.to_json(),
        store.capacity,
        store.arrays.page_rows,
        store.num_pages,
        _arrays_of(store),
        tables,
    )
    write_checked_json(folder / MANIFEST, manifest, FORMAT, VERSION)


def signature_of(folder: Path, manifest: StoreManifest) -> Signature:
    """Returns the signature of a store.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        return Signature.from_json(manifest.signature)
    except ValueError as error:
        raise CheckpointError(f"{folder / MANIFEST}: {error}") from error


def expect_manifest(
    folder: Path, manifest: StoreManifest, signature: Signature, tables: Sequence[str], capacity: int | None
) -> None:
    """Refuses a store with other contents.

    Args:
        folder, manifest: of the store.
        signature, tables: the expected signature and names of tables.
        capacity: the expected capacity; None expects any.

    Raises:
        CheckpointError: one of them differs.
    """
    stored = signature_of(folder, manifest)
    if stored != signature:
        raise CheckpointError(
            f"{folder}: the store has another signature: expected {stored!r}, got {signature!r}; nothing was changed"
        )
    if set(manifest.tables) != set(tables):
        raise CheckpointError(
            f"{folder}: the store has other tables: expected {', '.join(manifest.tables)}, got "
            f"{', '.join(tables)}; nothing was changed"
        )
    if capacity is not None and capacity != manifest.capacity:
        raise CheckpointError(
            f"{folder}: the store was made for a capacity of {manifest.capacity} steps, got {capacity}; leave "
            "it out, or load a checkpoint of it. Nothing was changed"
        )


def map_store(
    folder: Path,
    manifest: StoreManifest,
    signature: Signature,
    make_arena: Callable[[int], Arena],
    make_index: Callable[[int], Arena],
) -> Store:
    """Maps the rows of the store in a folder.

    Args:
        folder, manifest, signature: of the store.
        make_arena, make_index: see `Store`.

    Raises:
        CheckpointError: the files have another size than a store leaves, or another layout than that of this release.
    """
    num_pages, page_rows = manifest.num_pages, manifest.page_rows
    try:
        check_sizes(
            folder, num_pages, plan_index(num_pages, page_rows), plan_rows(signature, num_pages, page_rows)
        )
        store = Store(
            signature,
            manifest.capacity,
            make_arena=make_arena,
            make_index=make_index,
            page_rows=page_rows,
            num_pages=num_pages,
        )
    except ValueError as error:
        raise CheckpointError(f"{folder / MANIFEST}: {error}") from error
    if manifest.arrays != _arrays_of(store):
        raise CheckpointError(
            f"{folder}: the rows lie as another release of headrace has written them: expected "
            f"{_arrays_of(store)}, got {manifest.arrays}; load a checkpoint instead"
        )
    return store


def _arrays_of(store: Store) -> tuple[tuple[str, int], ...]:
    """Returns the name of each array of rows, and the bytes of a row in it."""
    return tuple(
        (name, math.prod(array.shape[1:]) * array.dtype.itemsize) for name, array in store.row_arrays.items()
    )
