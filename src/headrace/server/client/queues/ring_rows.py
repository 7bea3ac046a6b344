"""Writing samples into the places of a ring, one by one; most of them by one compiled call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import cython
from numpy.typing import NDArray

from headrace.server.client.queues.lone_samples import LoneSamples
from headrace.store.columns import Check, RowColumns

if not cython.compiled:
    from headrace.kernels.kinds import Bool, Int


class RingRows:
    """Samples that are written in turn: sample n, counted from 1, lies in row `(n - 1) % places` of a ring.

    For a while samples may lie elsewhere; see `lie_in`.

    `put` runs without a lock: it takes a place and counts the sample while it holds the interpreter lock, and runs no
    Python meanwhile. All else is done by one thread at a time, after `take_over`.

    Args:
        columns: of each the array `[places, ...]` and the check of a value; see `Column`.
        places: number of rows.
        read: takes a sample apart into its leaves; None: it is one.

    Attributes:
        written: number of the last sample that was written.
        free_until: number of the last sample for which there is a place.
        quiet_until: `put` writes samples before this number; 0: none.
        sent: number of the last sample that is in a message.
        full_at: number of the sample that fills a message.
        lone: sends a sample if it is the only one that was written and not sent; None: `put` sends none.

    >>> import numpy as np
    >>> memory = np.zeros((2, 3), np.int16)
    >>> rows = RingRows([(memory, np.asarray)], 2, None)
    >>> rows.append([np.arange(3, dtype=np.int16)])
    >>> rows.written, memory.tolist()
    (1, [[0, 1, 2], [0, 0, 0]])
    """

    def __init__(
        self,
        columns: Iterable[tuple[NDArray[Any], Check]],
        places: int,
        read: Callable[[Any], Sequence[Any]] | None,
    ) -> None:
        self._ring = RowColumns((index, array, check) for index, (array, check) in enumerate(columns))
        self._ring_places = places
        self._columns, self._places, self._first = self._ring, places, 1
        self._read = read
        self.written = 0
        self.free_until = 0
        self.quiet_until = 0
        self.sent = 0
        self.full_at = 0
        self.lone: LoneSamples | None = None

    def put(self, sample: Any) -> Bool:
        """Writes a sample if nothing else has to be done for it, and if its values need no conversion.

        Args:
            sample: not checked.

        Returns:
            Whether it was written.

        Raises:
            SpecError: its structure does not fit.
        """
        if self.written + 1 < self.quiet_until:
            return self._is_collected(sample)
        if self.lone is not None:
            return self._is_sent(sample)
        return False

    def _is_collected(self, sample: Any) -> Bool:
        """Writes a sample that only waits for a full message; see `put`."""
        if cython.compiled:
            # Here other threads may run.
            values = (sample,) if self._read is None else self._read(sample)
            number = self.written + 1
            if number > self.free_until or number >= self.quiet_until:
                return False
            if not self._columns.is_written((number - self._first) % self._places, values):
                return False
            self.written = number
            return True
        else:
            return False

    def _is_sent(self, sample: Any) -> Bool:
        """Writes a sample, and sends it if it is alone; see `put`."""
        if cython.compiled:
            # Here other threads may run.
            values = (sample,) if self._read is None else self._read(sample)
            number = self.written + 1
            lone = self.lone
            if lone is None or number > self.free_until or self.sent != self.written:
                return False
            if not lone.begin(self.sent):
                return False
            row = (number - 1) % self._ring_places
            is_written = False
            try:
                is_written = self._ring.is_written(row, values)
            finally:
                if not is_written:
                    lone.end()
            if not is_written:
                return False
            self.written = self.sent = number
            self.full_at += 1
            lone.send(number, row)
            return True
        else:
            return False

    def take_over(self) -> None:
        """Lets `put` write nothing from now on."""
        self.quiet_until = 0
        self.lone = None

    def append(self, values: Sequence[Any]) -> None:
        """Writes a sample for which there is a place.

        Args:
            values: one per leaf, checked.
        """
        self._columns.put((self.written + 1 - self._first) % self._places, values)
        self.written += 1

    def lie_in(self, columns: RowColumns, places: Int) -> None:
        """Writes the samples from the next one on into other memory, where it lies in the first row.

        Args:
            columns: of that memory.
            places: number of rows.
        """
        self._columns, self._places, self._first = columns, places, self.written + 1

    def lie_in_ring(self) -> None:
        """Writes the samples from the next one on into the ring."""
        self._columns, self._places, self._first = self._ring, self._ring_places, 1
