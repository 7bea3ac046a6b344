"""Memory of a client in which steps of a writer lie."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from headrace.leases.checking import LeaseError
from headrace.server.messages.writing import MOST_SHARED_NBYTES
from headrace.system import is_sealed


class ClientMemory:
    """Maps the memory file of a writer, to read steps in place.

    The client may write there at any time. So only values of its own steps lie in it, and each is copied into the store
    once: the server relies on none of them.

    Args:
        descriptors: that came with the writer's opening; the caller closes them.
        nbytes: of the memory.

    Raises:
        LeaseError: not one sealed memory file of this size.
    """

    def __init__(self, descriptors: Sequence[int], nbytes: int) -> None:
        # Rules: server LP5
        if len(descriptors) != 1 or not 1 <= nbytes <= MOST_SHARED_NBYTES:
            raise LeaseError(
                f"shared_nbytes: expected 1 to {MOST_SHARED_NBYTES} and one descriptor, got {nbytes} and "
                f"{len(descriptors)}"
            )
        [descriptor] = descriptors
        if not is_sealed(descriptor) or os.fstat(descriptor).st_size < nbytes:
            raise LeaseError(f"expected a sealed memory file of {nbytes} bytes")
        self._bytes = memoryview(mmap.mmap(descriptor, nbytes, prot=mmap.PROT_READ))

    def payload(self, offset: int, nbytes: int) -> memoryview:
        """Returns a part of the memory, read-only.

        Raises:
            ValueError: it is not within the memory.
        """
        if offset < 0 or offset + nbytes > len(self._bytes):
            raise ValueError(
                f"place: expected steps within the {len(self._bytes)} bytes that the writer shares, got {nbytes} bytes "
                f"from {offset} on"
            )
        return self._bytes[offset : offset + nbytes]
