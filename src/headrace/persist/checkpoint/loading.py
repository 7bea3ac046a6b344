"""Reading a checkpoint: every file is hashed and every number checked before a replay is made of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.checkpoint.folders import candidates, is_checkpoint
from headrace.persist.checkpoint.loaded_items import complete_items, request_table
from headrace.persist.checkpoint.loaded_rows import fill_metadata, new_store, request_rows
from headrace.persist.checkpoint.manifest import MANIFEST, Manifest, read_manifest
from headrace.persist.checkpoint.reading import CheckpointFiles
from headrace.persist.generator import generator_state
from headrace.persist.key_of_time import key_after_load
from headrace.persist.recovery import recover
from headrace.persist.states import ReplayState
from headrace.spec import Signature
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.tables.description.table import Table
from headrace.tables.description.table_json import table_from_json
from headrace.tables.item_memory import ItemMemory
from headrace.tables.table_state import TableState

T = TypeVar("T")

MakeArena = Callable[[int], Arena]
Loaded = ReplayState[ItemMemory]
"""The state of a replay whose items lie in the arrays that its tables will use."""


class _OtherTables(CheckpointError):
    """Tables of other names were asked for; no older checkpoint is tried."""


def load(
    path: str | os.PathLike[str],
    tables: Sequence[Table] | None,
    make: Callable[[Loaded, Store], T],
    make_arena: MakeArena = Arena.private_sparse,
) -> T:
    """Reads a checkpoint and makes a replay of it; see `Replay.load`.

    Args:
        path, tables: as of `Replay.load`.
        make: makes a replay of a state and its store, whose rows are complete. A ValueError that it raises is damage.
        make_arena: where the store keeps rows, and all that it knows of them.
    """
    place = Path(path)
    if is_checkpoint(place):
        return _load_one(place, tables, make, make_arena)
    for candidate in candidates(place):
        try:
            return _load_one(candidate, tables, make, make_arena)
        except _OtherTables:
            raise
        except CheckpointError as error:
            warnings.warn(f"{candidate.name} is left out: {error}", UserWarning, stacklevel=3)
    raise CheckpointError(
        f"{place}: expected a checkpoint, or a directory with a complete one; there is none"
    )


def _load_one(
    folder: Path, tables: Sequence[Table] | None, make: Callable[[Loaded, Store], T], make_arena: MakeArena
) -> T:
    manifest = read_manifest(folder)
    with _damage_in(folder / MANIFEST):
        state, store = _read(folder, manifest, tables, make_arena)
        with ExitStack() as on_failure:
            on_failure.callback(store.close)
            made = make(state, store)
            on_failure.pop_all()
        return made


@contextmanager
def _damage_in(path: Path) -> Iterator[None]:
    """Reports inconsistent contents as damage, even if the checksums match."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise CheckpointError(f"{path}: the checkpoint contradicts itself: {error}") from error


def _read(
    folder: Path, manifest: Manifest, tables: Sequence[Table] | None, make_arena: MakeArena
) -> tuple[Loaded, Store]:
    """Reads the state of a checkpoint, with other settings if `tables` has them, and the store."""
    files = CheckpointFiles(folder, manifest.files)
    saved = [table_from_json(entry.table) for entry in manifest.tables]
    if not saved:
        raise ValueError("expected at least one table, got none")
    chosen = _chosen(folder, saved, tables)
    with ExitStack() as on_failure:
        with files.reading():
            index = files.request_arrays("index.bin")
            states = [request_table(files, entry, chosen[entry.table.name]) for entry in manifest.tables]
            files.finish("index.bin")
            store = new_store(manifest, index["pages"], make_arena)
            # Closed after the threads that read into it.
            on_failure.callback(store.close)
            store.reserve_pages(len(index["pages"]))
            state = _fill(store, files, manifest, index, saved, states)
        on_failure.pop_all()
    return state, store


def _fill(
    store: Store,
    files: CheckpointFiles,
    manifest: Manifest,
    index: Mapping[str, NDArray[Any]],
    saved: Sequence[Table],
    states: list[TableState[ItemMemory]],
) -> Loaded:
    """Reads and checks items and the words of rows, while the values of rows are still being read."""
    steps = request_rows(files, store, index["pages"])
    files.finish(*(entry.file for entry in manifest.tables))
    state = _state_of(manifest, store.signature, states)
    found = [
        complete_items(files, entry, table, of, manifest.next_key)
        for table, entry, of in zip(saved, manifest.tables, states, strict=True)
    ]
    files.finish(steps)
    fill_metadata(store, index)
    recover(store, len(index["pages"]), found)
    return state


def _state_of(manifest: Manifest, signature: Signature, tables: list[TableState[ItemMemory]]) -> Loaded:
    unknown = set(manifest.given) - set(signature.columns)
    if unknown or manifest.next_key < 1 or manifest.next_episode < 0:
        raise ValueError(f"expected columns and counters, got {manifest.given}, {manifest.next_key}")
    # The saved replay went on, and may have used any key since (replay K1).
    next_key = key_after_load(manifest.next_key)
    skipped = (*manifest.skipped_keys, (manifest.next_key, next_key))
    if not all(1 <= first <= after <= next_key for first, after in skipped):
        raise ValueError(f"expected keys that were skipped, got {manifest.skipped_keys}")
    return ReplayState(
        signature,
        manifest.capacity,
        tables,
        next_key,
        manifest.next_episode,
        frozenset(manifest.given),
        manifest.paddings,
        generator_state(manifest.generator),
        skipped,
    )


def _chosen(folder: Path, saved: Sequence[Table], tables: Sequence[Table] | None) -> dict[str, Table]:
    names, given = {table.name for table in saved}, {table.name for table in tables or saved}
    if names != given:
        raise _OtherTables(
            f"{folder}: expected tables of the names saved, {', '.join(sorted(names))}, "
            f"got {', '.join(sorted(given))}"
        )
    return {table.name: table for table in tables or saved}
