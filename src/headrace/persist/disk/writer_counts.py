"""How many items of each client's writer the tables of a store have taken in, in a file beside them.

A client sends again what a killed server has not acknowledged. Items of one writer go into a table in one order, so
their number says which of them exist. It changes together with the items: before they go in, `changing` notes the
table's count of inserts and the writer's number; so the number after a kill follows from the table's count, which
changes with the items (`durable_ring.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.disk.mapped_file import mapped_file
from headrace.store.memory.arena_layout import ArenaLayout

WRITERS = "writers"
UNCOUNTED = -1
"""In place of a writer's slot: its items are not counted."""
_MOST_WRITERS = 100_000
_MAGIC_NUMBER, _THIS_VERSION = 0x68725F7772697465, 1
_SESSION_NBYTES = 16
# The words of `changing`: the slot + 1, or 0 where no items go in; the counts before.
_SLOT, _INSERTS, _COUNT = range(3)
# The words of `writers` before the counts: when the writer was opened last, or 0 for a free slot; its number; the name
# of its session.
_OPENED, _NUMBER, _SESSION, _COUNTS = 0, 1, 2, 4


class WriterCounts:
    """Counts items of writers, in at most 100 000 slots. The store's lock is held throughout.

    Args:
        path: of the file, made where there is none.
        tables: names, in their order.
        most: number of slots.

    Raises:
        CheckpointError: it is damaged.
        StoreFull: the disk is full.
    """

    def __init__(self, path: Path, tables: Sequence[str], most: int = _MOST_WRITERS) -> None:
        layout = ArenaLayout()
        layout.add("head", (3,), np.int64)
        layout.add("changing", (len(tables), 3), np.int64)
        layout.add("writers", (most, _COUNTS + len(tables)), np.int64)
        if path.exists() and path.stat().st_size != layout.nbytes:
            raise CheckpointError(f"{path}: expected {layout.nbytes} bytes, got {path.stat().st_size}")
        self.arena = mapped_file(path, layout.nbytes)
        arrays = layout.arrays(self.arena)
        self._tables = tuple(tables)
        self._changing: NDArray[np.int64] = arrays["changing"]  # type: ignore[assignment]
        self._writers: NDArray[np.int64] = arrays["writers"]  # type: ignore[assignment]
        head: NDArray[np.int64] = arrays["head"]  # type: ignore[assignment]
        if not head[0]:
            head[:] = _MAGIC_NUMBER, _THIS_VERSION, len(tables)
        elif head.tolist() != [_MAGIC_NUMBER, _THIS_VERSION, len(tables)]:
            raise CheckpointError(f"{path}, byte 0: expected counts of writers; the file is damaged")
        self._check(path)
        used = np.flatnonzero(self._writers[:, _OPENED])
        self._slots = {self._name_of(slot): slot for slot in used.tolist()}
        self._openings = int(self._writers[:, _OPENED].max())
        # Slots of writers of this process, of whose items some may be on their way.
        self._held: set[int] = set()

    def _check(self, path: Path) -> None:
        slots = self._changing[:, _SLOT]
        if (slots < 0).any() or (slots > len(self._writers)).any() or (self._changing < 0).any():
            raise CheckpointError(f"{path}: expected numbers of writers; the file is damaged")
        if (self._writers[:, _COUNTS:] < 0).any() or (self._writers[:, _OPENED] < 0).any():
            raise CheckpointError(f"{path}: expected counts >= 0; the file is damaged")

    def _name_of(self, slot: int) -> tuple[bytes, int]:
        words = self._writers[slot]
        return words[_SESSION:_COUNTS].tobytes(), int(words[_NUMBER])

    # ---- after an end of the process -------------------------------------------------------------------------------

    def complete(self, inserts: Sequence[int]) -> None:
        """Counts the items that went in before the process was killed.

        Args:
            inserts: the count of inserts of each table, as it was recovered.
        """
        for number, count in enumerate(inserts):
            self.end(number, count)

    def state(self) -> NDArray[np.int64]:
        """Returns a copy of the slots in use, for `restore`."""
        return self._writers[self._writers[:, _OPENED] > 0]

    def restore(self, state: NDArray[np.int64]) -> None:
        """Goes back to an earlier state."""
        self._changing[:] = 0
        self._writers[np.flatnonzero(self._writers[:, _OPENED]), _OPENED] = 0
        count = min(len(state), len(self._writers))
        self._writers[:count] = state[:count]
        self._slots = {self._name_of(slot): slot for slot in range(count)}

    # ---- writers ---------------------------------------------------------------------------------------------------

    def find(self, session: bytes, number: int) -> dict[str, int] | None:
        """Returns the number of items of each table that a writer has made; None: it is not known."""
        slot = self._slots.get((session, number))
        if slot is None:
            return None
        return dict(zip(self._tables, self._writers[slot, _COUNTS:].tolist(), strict=True))

    def open(self, session: bytes, number: int, counts: Mapping[str, int]) -> int:
        """Returns the slot of a writer; takes one with these counts if it is not known.

        A writer that was not opened by this process, the oldest one, loses its slot if none is free.

        Returns:
            The slot; `UNCOUNTED` if all writers are of this process.
        """
        name = session, number
        slot = self._slots.get(name)
        if slot is None:
            slot = self._free_slot()
            if slot == UNCOUNTED:
                return slot
            words = self._writers[slot]
            words[_OPENED] = 0
            words[_NUMBER] = number
            words[_SESSION:_COUNTS] = np.frombuffer(session, np.int64)
            words[_COUNTS:] = [counts.get(table, 0) for table in self._tables]
            self._slots[name] = slot
        self._openings += 1
        self._writers[slot, _OPENED] = self._openings
        self._held.add(slot)
        return slot

    def _free_slot(self) -> int:
        opened = self._writers[:, _OPENED].copy()
        opened[list(self._held)] = np.iinfo(np.int64).max
        slot = int(opened.argmin())
        if slot in self._held:
            return UNCOUNTED
        if opened[slot]:
            del self._slots[self._name_of(slot)]
        return slot

    def close(self, slot: int) -> None:
        """Forgets a writer that does not come back, and of whose items none is on its way."""
        if slot != UNCOUNTED:
            del self._slots[self._name_of(slot)]
            self._writers[slot, _OPENED] = 0
            self._held.discard(slot)

    # ---- items -----------------------------------------------------------------------------------------------------

    def begin(self, table: int, slot: int, inserts: int) -> None:
        """Notes that items of a writer are about to go into a table with this count of inserts."""
        # Ctrl-C may have come before the end of an earlier change.
        self.end(table, inserts)
        changing = self._changing[table]
        changing[_INSERTS] = inserts
        changing[_COUNT] = self._writers[slot, _COUNTS + table]
        changing[_SLOT] = slot + 1

    def end(self, table: int, inserts: int) -> None:
        """Counts the items that went in; the table has this count of inserts now."""
        slot, before, count = self._changing[table].tolist()
        if slot:
            self._writers[slot - 1, _COUNTS + table] = count + inserts - before
            self._changing[table, _SLOT] = 0
