"""Declarations of writers about all rows of a replay: columns of final rows, and values of padded rows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from headrace.errors import SpecError
from headrace.persist.disk.disk import Disk
from headrace.replay.lifetime import Lifetime
from headrace.replay.padding import plain_paddings, read_padding
from headrace.replay.sampling.sampler import Sampling
from headrace.spec import Signature


class Declarations:
    """Checks declarations, tells the sampler, and keeps them on disk.

    Args:
        signature, sampling, lifetime, lock: of the replay.
        disk: of the replay; None in memory.
    """

    def __init__(
        self,
        signature: Signature,
        sampling: Sampling,
        lifetime: Lifetime,
        lock: threading.RLock,
        disk: Disk | None,
    ) -> None:
        self._signature = signature
        self._sampling = sampling
        self._lifetime = lifetime
        self._lock = lock
        self._disk = disk

    def declare_final_columns(self, columns: Iterable[str]) -> None:
        """Sets the columns that final rows hold values of: the same in all, so views can tell values from zeros.

        Raises:
            SpecError: other columns than before.
        """
        # Rules: views V2
        given = frozenset(columns)
        before = self._sampling.given
        if given == before:
            return
        with self._lock:
            self._lifetime.check_open()
            if before:
                raise SpecError(
                    f"final: expected the columns {', '.join(sorted(before))}, as in earlier final rows of this "
                    f"replay, got {', '.join(sorted(given))}"
                )
            if self._disk is not None:
                self._disk.header.given = given
            self._sampling.know_given(given)

    def declare_padding(self, table: str, values: Mapping[str, Any]) -> None:
        """Sets the values of padded rows of a table's items; other columns are zero there.

        Args:
            table: name of a table of the replay.
            values: maps columns to the value of one row.

        Raises:
            SpecError: no such column, or a value that it cannot hold.
        """
        # Rules: trajectories M2
        checked = read_padding(self._signature, values)
        with self._lock:
            self._lifetime.check_open()
            self._sampling.paddings[table] = checked
            if self._disk is not None:
                self._disk.note_paddings(self.plain_paddings())

    def restore_paddings(self, saved: Mapping[str, Mapping[str, Any]], tables: Collection[str]) -> None:
        """Takes the paddings of a file, of those tables that the replay has."""
        self._sampling.paddings = {
            table: read_padding(self._signature, values) for table, values in saved.items() if table in tables
        }

    def plain_paddings(self) -> dict[str, dict[str, Any]]:
        """Returns the paddings as plain numbers and lists, for files."""
        return plain_paddings(self._sampling.paddings)
