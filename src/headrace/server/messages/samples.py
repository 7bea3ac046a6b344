"""Layout of samples of a queue, on the wire and in the memory that a client shares with the server.

Samples lie one behind the other. In a sample its leaves follow each other in the order of the signature, little-endian,
each at a multiple of 8 bytes; the size of a sample is a multiple of 8 as well.

Shared memory has a page more behind the samples, from the next multiple of 64 KiB on. Its first 8 bytes are the number
of the last sample that is in the queue, which the server writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.server.messages.columns import checked_bools
from headrace.spec import Signature

MAX_IN_FLIGHT = 64
"""Samples of a client that are sent and not acknowledged, at most, unless the client says otherwise."""
# Samples that are copied again while they are in the processor's cache take half the time of 8 MiB of them.
_RING_NBYTES = 1 << 22
_ALIGNMENT = 8
# Systems map memory from multiples of their page size, which is 64 KiB at most.
_MAP_ALIGNMENT = 1 << 16
COUNT_NBYTES = 4096
"""Bytes behind the samples in shared memory."""


class SampleLayout:
    """Where the leaves of a sample lie.

    Args:
        signature: of a sample.

    Attributes:
        nbytes: of a sample.
        has_bools: whether a leaf is of bools; see `checked`.
        leaves: maps the path of each leaf of a sample to its bytes in it.
        most_places: number of samples that any client may have sent without an acknowledgement: as many as fit into
            4 MiB, but at least 2.

    >>> layout = SampleLayout(Signature.like({"observation": np.zeros(5, np.float32), "done": False}))
    >>> layout.nbytes, layout.most_places, layout.count_offset(64)
    (32, 131072, 65536)
    """

    def __init__(self, signature: Signature) -> None:
        offsets, formats, end = [], [], 0
        self.leaves: dict[str, slice] = {}
        for path, spec in signature.columns.items():
            dtype = spec.dtype.newbyteorder("<")
            offsets.append(end)
            formats.append((dtype, spec.shape))
            self.leaves[path] = slice(end, end + spec.nbytes)
            end += _aligned(math.prod(spec.shape) * dtype.itemsize)
        self.nbytes = max(end, _ALIGNMENT)
        self.has_bools = any(spec.dtype.kind == "b" for spec in signature.columns.values())
        self._names = [str(index) for index in range(len(formats))]
        self._dtype = np.dtype(
            {"names": self._names, "formats": formats, "offsets": offsets, "itemsize": self.nbytes}
        )
        self.most_places = max(2, _RING_NBYTES // self.nbytes)

    def count_offset(self, places: int) -> int:
        """Returns where the page behind so many samples begins, in shared memory."""
        return -(-places * self.nbytes // _MAP_ALIGNMENT) * _MAP_ALIGNMENT

    def columns(self, memory: Any) -> list[NDArray[Any]]:
        """Returns the leaves of the samples in `memory`, arrays `[n, ...]` over it.

        Raises:
            ValueError: its length is not that of a number of samples.
        """
        samples = np.frombuffer(memory, self._dtype)
        return [samples[name] for name in self._names]

    def checked(self, columns: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Returns leaves that a peer has written; see `checked_bools`."""
        return [checked_bools(column) for column in columns] if self.has_bools else list(columns)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
