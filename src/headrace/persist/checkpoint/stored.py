"""A view of a checkpoint, which needs no tables. Its rows need no memory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from headrace.closing import Closing
from headrace.errors import Closed, StoreFull
from headrace.persist.checkpoint.loading import Loaded, load
from headrace.store.memory.arena import Arena
from headrace.store.store import Store
from headrace.system import is_linux
from headrace.tables.items.layout import LIVE


class StoredCheckpoint(Closing):
    """Rows and items of a checkpoint. Every byte was compared with its checksum.

    On Linux the rows are in a temporary file without a name, of which the system keeps as much in memory as there is
    room for; elsewhere they are in memory. Items are in memory.

    Args:
        path: as of `Replay.load`.

    Raises:
        CheckpointError: as of `Replay.load`.
        StoreFull: the folder of temporary files is full.

    Attributes:
        signature: of one step.
        store: the rows.
        tables: the name of each table to the number of its items.
        items: the name of each table to its items.
        next_key, skipped_keys: above all keys, and the keys that no item was given.
        final_columns: those that final rows are given.
        is_closed: whether this object is.
    """

    def __init__(self, path: Path) -> None:
        self.is_closed = False
        try:
            state, self.store = load(
                path, None, _both, _temporary_file if is_linux() else Arena.private_sparse
            )
        except StoreFull as error:
            raise StoreFull(
                f"{path}: expected room for the rows of the checkpoint in {tempfile.gettempdir()}; the environment "
                "variable TMPDIR names another folder for temporary files"
            ) from error
        self.lock = self.store.lock
        self.signature = state.signature
        self.items = {each.table.name: each.items.arrays for each in state.tables}
        self.tables = {name: int(arrays.ring[LIVE]) for name, arrays in self.items.items()}
        self.next_key, self.skipped_keys = state.next_key, state.skipped_keys
        self.final_columns = state.given

    def check_open(self) -> None:
        """Refuses a closed object.

        Raises:
            Closed: it is closed.
        """
        if self.is_closed:
            raise Closed("the checkpoint was closed; open it again")

    def close(self) -> None:
        """Lets go of the rows; closing twice does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self.store.close()


def _both(state: Loaded, store: Store) -> tuple[Loaded, Store]:
    return state, store


def _temporary_file(nbytes: int) -> Arena:
    with tempfile.TemporaryFile() as file:
        return Arena.on_disk(os.dup(file.fileno()), nbytes)
