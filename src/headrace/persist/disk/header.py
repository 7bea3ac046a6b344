"""The header of a store on disk: a few mapped words that must never go back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.errors import CheckpointError
from headrace.persist.disk.mapped_file import mapped_file
from headrace.persist.disk.skipped_keys import read_skipped, write_skipped
from headrace.store.memory.arena import Arena
from headrace.store.memory.arena_layout import ArenaLayout
from headrace.tables.distribution import SkippedKeys

# The words; the generations of the tables follow them.
_MAGIC, _VERSION, _NEXT_KEY, _NEXT_EPISODE, _IS_GIVEN, _IS_BEGUN, _GENERATIONS = 0, 1, 2, 3, 4, 5, 16
# The run of the system in which the store is open (`boot_id`), in two words; and the token of the record of an orderly
# close that is out of date, since the store was opened and something may have changed.
_BOOT, _OPENED = 6, 8
# The key that the next item gets; 0 in a store of 0.1.0, which did not note it. `_NEXT_KEY` is ahead of it.
_KEY_NOW = 9
_LOW_WORD = (1 << 63) - 1
_MAGIC_NUMBER, _THIS_VERSION = 0x68725F6865616465, 1
# Keys are reserved in groups of this size. A killed process leaves no gap: `_KEY_NOW` tells how many were used.
_KEYS_AHEAD = 1 << 16


class DiskHeader:
    """Counters of a store, and which generation of each table's items counts. Every change is one store of eight bytes.

    Args:
        path: of the file.
        columns: names of the store's columns.
        num_tables: how many tables it has.
        is_new: make it; otherwise it has to be there.
        open_arena: how the file is mapped.

    Raises:
        CheckpointError: it is missing or damaged.

    Attributes:
        next_episode: int64[1], the number of the next episode; kernels count in it.
        key_now: int64[1], the key of the next item; `StoredKeys` counts in it.
    """

    def __init__(
        self,
        path: Path,
        columns: tuple[str, ...],
        num_tables: int,
        *,
        is_new: bool,
        open_arena: Callable[[Path, int], Arena] = Arena.file,
    ) -> None:
        layout = ArenaLayout()
        layout.add("words", (_GENERATIONS + num_tables,), np.int64)
        layout.add("given", (len(columns),), np.uint8)
        if is_new:
            path.unlink(missing_ok=True)
        elif not path.exists() or path.stat().st_size != layout.nbytes:
            raise CheckpointError(f"{path}: expected {layout.nbytes} bytes; the file is missing or damaged")
        self.arena = mapped_file(path, layout.nbytes, open_arena)
        arrays = layout.arrays(self.arena)
        self._words: NDArray[np.int64] = arrays["words"]  # type: ignore[assignment]
        self._given: NDArray[np.uint8] = arrays["given"]  # type: ignore[assignment]
        self._columns = columns
        self._folder = path.parent
        if is_new:
            self._words[[_NEXT_KEY, _KEY_NOW]] = 1
            self._words[[_MAGIC, _VERSION]] = _MAGIC_NUMBER, _THIS_VERSION
        self._check(path)
        self.next_episode = self._words[_NEXT_EPISODE : _NEXT_EPISODE + 1]
        self.key_now = self._words[_KEY_NOW : _KEY_NOW + 1]

    def _check(self, path: Path) -> None:
        for word, least, most in (
            (_MAGIC, _MAGIC_NUMBER, _MAGIC_NUMBER),
            (_VERSION, _THIS_VERSION, _THIS_VERSION),
            (_NEXT_KEY, 1, 1 << 62),
            (_KEY_NOW, 0, self.next_key),
            (_NEXT_EPISODE, 0, 1 << 62),
            (_IS_GIVEN, 0, 1),
            (_IS_BEGUN, 0, 1),
        ):
            if not least <= self._words[word] <= most:
                raise CheckpointError(
                    f"{path}, byte {8 * word}: expected a number from {least} to {most}, got {self._words[word]}"
                )

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the owner of the store, and has a copy of it in memory."""
        return not self.arena.is_on_disk

    @staticmethod
    def is_begun(path: Path) -> bool:
        """Returns whether there is a header whose store was once complete."""
        words = np.fromfile(path, np.int64, _GENERATIONS) if path.exists() else np.zeros(0, np.int64)
        return len(words) > _IS_BEGUN and bool(words[_IS_BEGUN])

    def begin(self) -> None:
        """Marks the store as complete."""
        self._words[_IS_BEGUN] = 1

    @property
    def next_key(self) -> int:
        """No key from here on was ever used, and some before it may not have been (`key_now`)."""
        return int(self._words[_NEXT_KEY])

    @next_key.setter
    def next_key(self, key: int) -> None:
        self._words[_NEXT_KEY] = key

    def key_after_kill(self, newest: int) -> int:
        """Returns the key of the next item after the process of the store was killed.

        Args:
            newest: the highest key of an item. It may be `key_now` or more: a call that was under way had inserted it.
        """
        key_now = int(self.key_now[0])
        return max(key_now, newest + 1) if key_now else self.next_key

    def set_keys_aside(self, next_key: int) -> int:
        """Reserves keys from `next_key` on; returns the first that is not reserved."""
        self.next_key = next_key + _KEYS_AHEAD
        return next_key + _KEYS_AHEAD

    def read_skipped(self) -> SkippedKeys:
        """See `read_skipped` of `skipped_keys.py`."""
        return read_skipped(self._folder)

    def write_skipped(self, skipped: SkippedKeys) -> None:
        """See `write_skipped` of `skipped_keys.py`."""
        write_skipped(self._folder, skipped)

    @property
    def given(self) -> frozenset[str]:
        """The columns that final rows are given; empty while none were."""
        if not self._words[_IS_GIVEN]:
            return frozenset()
        return frozenset(name for name, given in zip(self._columns, self._given, strict=True) if given)

    @given.setter
    def given(self, columns: frozenset[str]) -> None:
        self._given[:] = [name in columns for name in self._columns]
        self._words[_IS_GIVEN] = bool(columns)

    def generation_of(self, number: int) -> int:
        """Returns the generation of a table's items that counts."""
        return int(self._words[_GENERATIONS + number])

    def turn_generation(self, number: int, generation: int) -> None:
        """Makes this generation of a table's items count."""
        self._words[_GENERATIONS + number] = generation

    @property
    def boot(self) -> int:
        """The run of the system in which the store was open last (`boot_id`); 0 if that is not known."""
        low, high = self._words[_BOOT : _BOOT + 2].tolist()
        return int(high << 63 | low)

    @boot.setter
    def boot(self, boot: int) -> None:
        self._words[_BOOT : _BOOT + 2] = boot & _LOW_WORD, boot >> 63

    @property
    def opened(self) -> int:
        """The token of the last orderly close, once the store is opened again; 0 before."""
        return int(self._words[_OPENED])

    @opened.setter
    def opened(self, token: int) -> None:
        self._words[_OPENED] = token

    def content(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Returns all words but `opened`, which changes when the store is opened."""
        return np.delete(self._words, _OPENED), self._given
